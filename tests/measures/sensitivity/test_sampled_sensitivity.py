"""Sensitivity on some samples against that on all; norms by iteration against singular values."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from sensitivity_cases import NETWORKS, Attention, _mlp, measure, samples
from tolerances import LOSSY, ROUNDING
from torch import Tensor, nn

from audit.measures.contract import Audit, Measurement
from audit.measures.sensitivity.many_scores import JacobianProducts, jacobian_products, largest_norms
from audit.measures.sensitivity.measure import Sensitivity
from audit.report.conduct import Plan, PlannedStage

BY_SIGNS = ("sharpness", "adaptive_sharpness", "sharpness_trace")


def sampled(make_audit, network, x, y, task="classification", k=0, **knobs) -> tuple[Measurement, Audit]:
    audit = make_audit(network, x, y, x[:4], y[:4], task=task, **{"bootstrap": 20, **knobs})
    stage = PlannedStage(name="sensitivity", form="sampled", samples=k)
    audit = replace(audit, plan=Plan(stages=[stage]))
    return Sensitivity().start(audit).finish(), audit


def close(found: object, expected: object, rel: float = LOSSY) -> bool:
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(close, found, expected))
    return found == (pytest.approx(expected, rel=rel) if isinstance(expected, float) else expected)


class Words(nn.Module):
    """Embedded tokens; the input has no derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(7, 5), Attention()

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(self.words(ids))


def case(name: str) -> tuple[nn.Module, np.ndarray, np.ndarray, str]:
    torch.manual_seed(1)
    if name == "embedding":
        rng = np.random.default_rng(0)
        return Words(), rng.integers(0, 7, (13, 3)), rng.integers(0, 3, 13), "classification"
    build, shape, _, task = NETWORKS[name]
    network = build()
    outputs = network.eval()(torch.zeros(2, *shape)).shape[1]
    return network, *samples(shape, task, outputs=outputs), task


@pytest.mark.parametrize("name", [*NETWORKS, "embedding"])
def test_all_samples_give_the_exact_numbers(make_audit, name) -> None:
    network, x, y, task = case(name)
    exact, (found, _) = measure(make_audit, network, x, y, task), sampled(make_audit, network, x, y, task)
    for path, layer in exact.layers.items():
        other = asdict(found.layers[path])
        assert (other.pop("form"), other.pop("samples")) == ("sampled", len(x))
        for key, value in other.items():
            assert close(value, asdict(layer)[key]) or isinstance(value, dict), (path, key)
            if isinstance(value, dict):
                assert all(close(part, asdict(layer)[key][each]) for each, part in value.items())
    others = {"form", "samples", "sign_samples", "bounds", "chain", "histogram", "sharpness_trace_skipped", "skipped"}
    for key, value in asdict(found.network).items():
        if key.removesuffix("_ci95") not in {*others, *BY_SIGNS}:
            assert close(value, getattr(exact.network, key)), key
    assert found.network.skipped == exact.network.skipped and found.network.form == "sampled"
    for key in "ABC" if exact.network.chain else "":
        assert close(getattr(found.network.chain, key), getattr(exact.network.chain, key))


@pytest.mark.parametrize("name", [*NETWORKS, "embedding"])
def test_bounds_hold_within_the_error_of_the_signs(make_audit, name) -> None:
    network, x, y, task = case(name)
    exact, (found, _) = measure(make_audit, network, x, y, task), sampled(make_audit, network, x, y, task)
    for bound, other in zip(exact.network.bounds, found.network.bounds, strict=True):
        assert other.id == bound.id and other.holds is not False
        assert close(other.left, bound.left)
        if other.right is not None and other.error is not None:
            assert other.right >= bound.right - 4 * other.error
            if not other.left_out:  # S(θ) of some samples alone is only known to be no more than that of all
                assert other.right <= bound.right + 4 * other.error
        if other.holds is None and bound.holds is not None:
            assert other.skipped.startswith("both sides are sampled")


@pytest.mark.parametrize("seeds", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_sharpness_lies_within_its_interval_in_most_seeds(make_audit, seeds: int) -> None:
    network, x, y, _ = case("residual")
    exact = measure(make_audit, network, x, y).network
    inside = []
    for seed in range(seeds):
        found = sampled(make_audit, network, x, y, seed=seed)[0].network
        for key in ("sharpness", "adaptive_sharpness"):
            low, high = getattr(found, f"{key}_ci95")
            inside.append(low <= getattr(exact, key) <= high)
    assert np.mean(inside) >= 0.85


def test_some_samples_are_picked_by_the_seed_and_counted(make_audit) -> None:
    network, x, y, _ = case("relu")
    few = [sampled(make_audit, network, x, y, k=8, seed=seed)[0] for seed in (0, 0, 1)]
    assert few[0].network.samples == 8 and few[0].layers["0"].samples == 8
    assert few[0].network.mls == few[1].network.mls != few[2].network.mls
    assert sum(few[0].network.histogram.counts) == 8


@pytest.mark.parametrize(("name", "known"), [("relu", True), ("conv", True), ("gelu", False), ("attention", False)])
def test_the_trace_is_sharpness_where_nothing_is_curved(make_audit, name, known) -> None:
    network, x, y, task = case(name)
    found = sampled(make_audit, network, x, y, task)[0].network
    assert found.sharpness_trace == (found.sharpness if known else None)
    assert (found.sharpness_trace_skipped is None) == known


def test_a_small_room_changes_no_number(make_audit) -> None:
    network, x, y, task = case("attention")
    audit = sampled(make_audit, network, x, y, task)[1]
    wide, narrow = (_in_room(audit, room) for room in (1 << 30, 1))
    for key in ("mls", "nmls", "mean_log_volume", "input_invariant_mls", "matrix_normalized_sharpness"):
        assert close(getattr(narrow, key), getattr(wide, key)), key


def _in_room(audit: Audit, room: int):
    audit.train.room = room
    return Sensitivity().start(audit).finish().network


# Many scores.


class Wide(nn.Module):
    """40 scores of a convolution, a skip and dense layers."""

    def __init__(self, act: type[nn.Module] = nn.GELU) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv1d(1, 3, 3), act()
        self.mix, self.head = nn.Linear(18, 18), nn.Linear(18, 40)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv(x[:, None])).flatten(1)
        return self.head(x + self.act(self.mix(x)))


@pytest.mark.parametrize("build", [Wide, lambda: Wide(nn.ReLU), lambda: _mlp(8, 20, 20, 40)])
def test_norms_of_many_scores_are_the_largest_singular_values(make_audit, build) -> None:
    torch.manual_seed(0)
    network, rng = build(), np.random.default_rng(0)
    x, y = rng.normal(size=(16, 8)), rng.integers(0, 40, 16)
    exact, (found, _) = measure(make_audit, network, x, y), sampled(make_audit, network, x, y)
    assert found.network.norm_error <= 1e-3
    for key in ("mls", "nmls"):
        assert close(getattr(found.network, key), getattr(exact.network, key), found.network.norm_error + 1e-12), key
    assert close(found.network.normalized_mls, exact.network.normalized_mls, 3 * found.network.norm_error)
    for path, layer in found.layers.items():
        assert close(layer.mls, exact.layers[path].mls, found.network.norm_error + 1e-12)
        assert layer.units_active == exact.layers[path].units_active
        assert layer.mean_log_volume is layer.rank_deficient_samples is None
        assert layer.sharpness == pytest.approx(exact.layers[path].sharpness, rel=0.5)
    assert found.network.input_invariant_mls == pytest.approx(exact.network.input_invariant_mls, rel=0.4)
    assert found.network.chain is found.network.dimensionality is found.network.mean_rank is None
    reason = "volumes, ranks and dimensions would take a backward pass for each of so many scores"
    assert found.network.skipped == found.layers["head" if "head" in found.layers else "4"].skipped
    assert found.network.skipped.startswith(reason)
    bounds = {bound.id: bound for bound in found.network.bounds}
    assert bounds["prop-3.4"].skipped == "the model has so many scores that volumes are not measured"
    assert all(bound.holds is not False for bound in bounds.values())


def test_layers_over_tokens_are_left_out_where_there_are_many_scores(make_audit) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Flatten(), nn.Linear(18, 33))
    x, y = np.random.default_rng(0).normal(size=(9, 3, 5)), np.arange(9)
    found = sampled(make_audit, network, x, y)[0]
    assert found.layers["0"].mls is None and found.layers["3"].mls > 0 and found.network.nmls is None
    assert found.layers["0"].skipped.endswith("would take an iteration of its own, and is left out")
    assert found.layers["0"].sharpness > 0 and found.network.mls > 0
    ten = next(bound for bound in found.network.bounds if bound.id == "prop-3.10")
    assert ten.skipped == "some layers' sensitivities are not measured, since the model has so many scores"


@pytest.mark.parametrize("spread", [1.0, 0.9, 0.5])
def test_iterated_norms_keep_their_promise(spread: float) -> None:
    torch.manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(6, size, 50, dtype=torch.float64)).Q for size in (60, 90))
    s = spread ** torch.arange(50, dtype=torch.float64)
    K = (U * s) @ V.mT
    products = JacobianProducts(lambda w: (w[:, None] @ K)[:, 0], lambda v: (K @ v[..., None])[..., 0])
    found = largest_norms(products, torch.randn(6, 60, dtype=torch.float64))
    assert (found.largest <= 1 + 1e-12).all()
    assert ((1 - found.largest) <= found.error + 1e-12).all() and (found.error <= 1e-2).all()


def test_products_are_those_of_the_jacobian() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv1d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(8, 5)).double()
    x = torch.randn(4, 1, 6, dtype=torch.float64, requires_grad=True)
    products = jacobian_products(network(x), x)
    K = torch.stack([torch.autograd.functional.jacobian(network, one[None])[0, :, 0, 0] for one in x.detach()])
    w, v = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64)
    assert torch.allclose(products.transposed(w), (w[:, None] @ K)[:, 0], rtol=ROUNDING)
    assert torch.allclose(products.times(v), (K @ v[..., None])[..., 0], rtol=ROUNDING)


def test_scores_that_do_not_depend_on_the_input_have_norm_zero() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    found = largest_norms(
        jacobian_products(0 * x.sum(1, keepdim=True) + torch.ones(3, 40), x), torch.randn(3, 40).double()
    )
    assert (found.largest == 0).all() and (found.error == 0).all() and math.isfinite(float(found.error.sum()))
