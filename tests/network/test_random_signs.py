"""Sums from random signs: unbiased over many seeds, and as sure as their standard errors say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_audits import AuditMaker
from tolerances import EXACT
from torch import nn

from audit.measures.contract import Audit
from audit.measures.flatness.measure import Flatness
from audit.network.random_signs import Draw, Draws, gradient_squares, sign_sums
from audit.network.record import Products

SEEDS = 2000


def small_audit(make_audit: AuditMaker, task: str, tokens: bool = False) -> Audit:
    """With `tokens`, the first layer acts on three vectors of each sample."""
    torch.manual_seed(1)
    outputs = {"classification": 3, "binary": 1, "regression": 2}[task]
    last = nn.Linear(9 if tokens else 5, outputs)
    network = nn.Sequential(nn.Linear(4, 3 if tokens else 5), nn.ReLU(), nn.Flatten(), last).double()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 3, 4) if tokens else (24, 4))
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
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("task", ["classification", "binary", "regression"])
def test_over_two_thousand_seeds_every_number_is_unbiased_and_its_interval_covers(
    make_audit: AuditMaker, task: str, tokens: bool
) -> None:
    audit = small_audit(make_audit, task, tokens)
    truth = exact(audit)
    drawn = [list(flat(audit, seed, 16)) for seed in range(SEEDS)]
    values, errors = (torch.stack([each[k] for each in drawn]) for k in (0, 1))
    noise = values.std(0) / SEEDS**0.5
    assert bool(((values.mean(0) - truth).abs() <= 4.5 * noise + 1e-12).all())
    covered = ((values - truth).abs() <= 1.96 * errors + 1e-12).double()
    drawn_by_chance = errors.mean(0) > 1e-12 * truth  # the weights of one vector and one score are known exactly
    assert 0.92 <= float(covered[:, drawn_by_chance].mean()) <= 0.98
    assert bool(covered[:, ~drawn_by_chance].all())


@pytest.mark.parametrize("tokens", [False, True])
def test_signs_agree_with_the_exact_numbers_within_their_errors(make_audit: AuditMaker, tokens: bool) -> None:
    audit = small_audit(make_audit, "classification", tokens)
    truth = exact(audit)
    drawn = [list(flat(audit, seed)) for seed in range(60)]
    values = torch.stack([each[0] for each in drawn])
    noise = values.std(0) / 60**0.5
    assert bool(((values.mean(0) - truth).abs() <= 5 * noise + 1e-12).all())


@pytest.mark.parametrize("tokens", [False, True])
def test_squares_of_the_loss_gradients_are_those_of_all_samples(make_audit: AuditMaker, tokens: bool) -> None:
    audit = small_audit(make_audit, "classification", tokens)
    audit.network.requires_grad_(True)
    weights = [audit.network.get_parameter(f"{layer.module}.weight") for layer in audit.layers]
    rows = []
    for x, y in zip(audit.train.x, audit.train.y, strict=True):
        loss = nn.functional.cross_entropy(audit.network(x[None]), y[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)]))
    audit.network.requires_grad_(False)
    g = torch.stack(rows)
    batches = list(audit.capture.batches(audit.train.x, audit.train.y, 5))
    found = [gradient_squares(audit.network, audit.layers, audit.loss, batches, seed) for seed in range(200)]
    of_mean, mean = (torch.tensor(column, dtype=torch.float64) for column in zip(*found, strict=True))
    assert float(of_mean[0]) == pytest.approx(float(g.mean(0).square().sum()), rel=EXACT)
    assert float(mean.mean()) == pytest.approx(
        float(g.square().sum(1).mean()), abs=5 * float(mean.std()) / 200**0.5 + 1e-12
    )
    assert (float(mean.std()) < 1e-12) == (not tokens)  # of one vector per sample, nothing is drawn


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
