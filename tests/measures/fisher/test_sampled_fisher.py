"""The Fisher determinant from a pool of train samples, against the exact form."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from made_audits import AuditMaker
from references import fisher as reference
from tolerances import LOSSY, SOLVED
from torch import nn
from zoo import ZOO, Tied, build

from audit.measures.contract import Audit, Measurement
from audit.measures.fisher.determinant import log_determinants
from audit.measures.fisher.measure import Drawn, Fisher, determinant_error, draw_pool, single_samples
from audit.network.record import Products
from audit.report.conduct import Plan, PlannedStage

CASES = [name for name in ZOO if name != "one-weight"]


def exact(audit: Audit) -> Measurement:
    fold = Fisher().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    return fold.finish()


def sampled(audit: Audit, samples: int = 0, **chosen: object) -> Measurement:
    stage = PlannedStage(name="fisher", form="sampled", samples=samples)
    audit = dataclasses.replace(audit, plan=Plan(stages=[stage]))
    return Fisher().start(audit).finish()


def made(make_audit: AuditMaker, network: nn.Module, x: torch.Tensor, y: torch.Tensor, task: str, **more: object):
    chosen = {"subsets": 5, "subset_size": 4, "bootstrap": 200, **more}
    return make_audit(network, x.numpy(), y.numpy(), x.numpy(), y.numpy(), task, **chosen)


@pytest.mark.parametrize("name", [*CASES, "tied"])
def test_a_pool_of_all_samples_gives_the_exact_numbers(make_audit: AuditMaker, name: str) -> None:
    network, x, y = (Tied().double(), *build("relu", n=9)[1:]) if name == "tied" else build(name, n=9)
    audit = made(make_audit, network, x, y, "classification" if name == "tied" else ZOO[name].task)
    expected, found = exact(audit), sampled(audit)
    assert found.network.form == "sampled" and found.network.pool == 9
    assert found.network.subsets_sha256 == expected.network.subsets_sha256
    for key in ("gamma", "gamma_std", "gamma_norms", "gamma_angles", "gamma_full", "frobenius_norm", "spectral_radius"):
        assert getattr(found.network, key) == pytest.approx(getattr(expected.network, key), rel=LOSSY), key
    for layer, block in expected.layers.items():
        assert found.layers[layer].singular_subsets == block.singular_subsets
        assert found.layers[layer].gamma == (None if block.gamma is None else pytest.approx(block.gamma, rel=LOSSY))


@pytest.mark.parametrize("name", ["relu", "lenet", "tokens", "regression"])
def test_single_precision_is_good_to_its_digits(make_audit: AuditMaker, name: str) -> None:
    network, x, y = build(name, n=9)
    expected = exact(made(make_audit, network, x, y, ZOO[name].task)).network
    found = sampled(made(make_audit, network, x, y, ZOO[name].task, precision="float32")).network
    assert found.gamma == pytest.approx(expected.gamma, rel=1e-4)


def test_the_subsets_come_from_the_pool(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=40)
    audit = made(make_audit, network, x, y, "classification", subsets=30)
    found = sampled(audit, 16).network
    pool = draw_pool(40, 16, 0)
    assert len(set(pool.tolist())) == 16 and pool.tolist() == sorted(pool)
    G = reference.gradients(audit.network, x, y, "classification")[torch.from_numpy(pool)]
    assert found.pool == 16 and found.subsets == 30 and found.subset_size == 4
    assert found.note.startswith("All subsets are drawn from the same 16 train samples")
    one = sampled(dataclasses.replace(audit, settings=dataclasses.replace(audit.settings, subset_size=16)), 16).network
    assert (one.subsets, one.subset_size, one.pool) == (1, 16, 16)
    assert one.gamma == pytest.approx(reference.log_determinant(G), rel=LOSSY)
    assert one.note.startswith("One subset of 16 train samples")
    assert one.gamma_ci95[0] < one.gamma < one.gamma_ci95[1]


def test_what_is_not_there_says_why(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=9)
    audit = made(make_audit, network, x, y, "classification")
    found = sampled(audit, 8).network
    assert found.robustness is None and found.robustness_skipped.startswith("Measured only where every sample")
    stage = PlannedStage(name="fisher", form="skipped", why="No time for it.")
    nothing = Fisher().start(dataclasses.replace(audit, plan=Plan(stages=[stage]))).finish()
    assert nothing.network.form == "skipped" and nothing.network.skipped == "No time for it."
    assert {block.skipped for block in nothing.layers.values()} == {"No time for it."}


def test_a_sample_that_is_there_twice_makes_a_zero(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=9)
    x[1], y[1] = x[0], y[0]
    found = sampled(made(make_audit, network, x, y, "classification", subset_size=9, precision="float32")).network
    assert found.gamma is None and found.singular_subsets == 1
    assert found.skipped.startswith("In every subset the gradients are linearly dependent")


def test_what_one_sample_does_by_leaving_it_out() -> None:
    torch.manual_seed(0)
    G = torch.randn(5, 12, dtype=torch.float64) * torch.tensor([1.0, 3, 10, 0.1, 1])[:, None]
    d = single_samples((G @ G.T)[None])[0]
    for i in range(5):
        without = torch.cat([G[:i], G[i + 1 :]])
        assert float(d[i]) == pytest.approx(
            reference.log_determinant(G) - reference.log_determinant(without), rel=SOLVED
        )


@pytest.mark.parametrize(("pool", "size", "T"), [(64, 16, 50), (32, 16, 50), (24, 24, 1), (128, 10, 100)])
def test_intervals_cover_what_all_samples_would_give(pool: int, size: int, T: int) -> None:
    """200 pools of 400 gradients whose sizes differ by orders of magnitude, and which share directions."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(400, 60)) * np.exp(rng.normal(size=(400, 1))) + 2 * rng.integers(0, 2, (400, 1))
    K = torch.from_numpy(G @ G.T)

    def gamma(rows: np.ndarray, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
        places = np.stack([rng.choice(len(rows), size, replace=False) for _ in range(count)])
        at = torch.from_numpy(rows[places])
        return K[at[:, :, None], at[:, None, :]], places

    truth = float(log_determinants(gamma(np.arange(400), 4000, rng)[0]).values.mean())
    hits = 0
    for _ in range(200):
        grams, places = gamma(rng.choice(400, pool, replace=False), T, rng)
        dets = log_determinants(grams)
        error = determinant_error(grams, dets, Drawn(places, 400))
        assert error is not None
        hits += abs(float(dets.values.mean()) - truth) <= 1.96 * error
    assert 0.92 <= hits / 200 <= 0.99
