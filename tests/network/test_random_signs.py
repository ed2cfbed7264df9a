"""Sums from random signs: unbiased over many seeds, and as sure as their standard errors say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_audits import AuditMaker
from torch import nn

from audit.measures.contract import Audit
from audit.measures.flatness.measure import Flatness
from audit.network.random_signs import Draw, Draws, sign_sums
from audit.network.record import Products

SEEDS = 2000


def small_audit(make_audit: AuditMaker, task: str) -> Audit:
    torch.manual_seed(1)
    outputs = {"classification": 3, "binary": 1, "regression": 2}[task]
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, outputs)).double()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 4))
    y = rng.normal(size=(24, outputs)) if task == "regression" else rng.integers(0, max(2, outputs), 24)
    return make_audit(network, x, y, x[:4], y[:4], task, bootstrap=10)


def flat(audit: Audit, seed: int, repeats: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sampled number and its standard error."""
    batches = list(audit.capture.batches(audit.train.x, audit.train.y, 6))
    found = sign_sums(audit.network, audit.layers, audit.loss, batches, Draw(len(audit.train), repeats, seed))
    parts = [
        each
        for forms in found.layers.values()
        for each in (forms.trace, forms.relative, forms.all_rows, forms.all_columns, forms.rows, forms.columns)
    ]
    parts += list(found.squares.values())
    return (torch.cat([getattr(part, name).reshape(-1) for part in parts]) for name in ("value", "error"))  # type: ignore[return-value]


def exact(audit: Audit) -> torch.Tensor:
    """The same numbers by the measure that sees every sample, and by plain autograd for the squares."""
    fold = Flatness().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    numbers: list[float] = []
    for block in fold.finish().layers.values():
        numbers += [block.trace, block.relative_flatness, block.rho_sigma, block.rho_columns_sigma]
        numbers += [*block.rho_neurons, *block.rho_column_neurons]
    network = audit.network.requires_grad_(True)
    for value in network.parameters():
        plain, weighted = 0.0, 0.0
        for x in audit.train.x:
            for score in network(x[None])[0]:
                (g,) = torch.autograd.grad(score, value, retain_graph=True)
                plain += float(g.square().sum())
                weighted += float((g * value.detach()).square().sum())
        numbers += [plain / len(audit.train), weighted / len(audit.train)]
    network.requires_grad_(False)
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "binary", "regression"])
def test_over_two_thousand_seeds_every_number_is_unbiased_and_its_interval_covers(
    make_audit: AuditMaker, task: str
) -> None:
    audit = small_audit(make_audit, task)
    truth = exact(audit)
    drawn = [list(flat(audit, seed, 16)) for seed in range(SEEDS)]
    values, errors = (torch.stack([each[k] for each in drawn]) for k in (0, 1))
    noise = values.std(0) / SEEDS**0.5
    assert bool(((values.mean(0) - truth).abs() <= 4.5 * noise + 1e-12).all())
    covered = ((values - truth).abs() <= 1.96 * errors + 1e-12).double().mean()
    assert 0.92 <= float(covered) <= 0.98


def test_signs_agree_with_the_exact_numbers_within_their_errors(make_audit: AuditMaker) -> None:
    audit = small_audit(make_audit, "classification")
    truth = exact(audit)
    drawn = [list(flat(audit, seed)) for seed in range(60)]
    values = torch.stack([each[0] for each in drawn])
    noise = values.std(0) / 60**0.5
    assert bool(((values.mean(0) - truth).abs() <= 5 * noise + 1e-12).all())


def test_draws_over_some_batches_know_that_the_others_may_differ() -> None:
    """Batches picked from many: the error covers the spread between batches, not only that of the draws."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(400):
        sums = rng.exponential(size=64)
        picked = rng.permutation(64)[:24]
        draws = Draws(population=64)
        for place in picked:
            draws.add(torch.from_numpy(sums[place] + 0.1 * rng.normal(size=3)), 1)
        found = draws.estimate()
        missed += int(abs(float(found.value) - sums.mean()) > 1.96 * float(found.error))
    assert 0.02 <= missed / 400 <= 0.10


def test_the_network_is_left_as_it_was(make_audit: AuditMaker) -> None:
    audit = small_audit(make_audit, "classification")
    list(flat(audit, 0))
    assert not any(value.requires_grad for value in audit.network.parameters())
    assert all(value.grad is None for value in audit.network.parameters())
