"""Volume, rank and dimension of the local map: cases solved by hand, ill-conditioned ones, ranks that fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tolerances import BY_HAND, CANCELS, EXACT, LOSSY, ROUNDING, SOLVED
from torch import nn

from audit.maths.decompositions import (
    centred_log_volume,
    centring,
    largest_singular_value,
    local_map,
    narrow_factor,
    singular_values,
    smallest_singular_value,
)
from audit.maths.gram import spectral_norm
from audit.measures.sensitivity.measure import Sensitivity
from audit.network.record import Products

EPSILON = torch.finfo(torch.float64).eps
SMALL = settings(max_examples=40, deadline=None)


def with_singular_values(values: list[float], width: int, seed: int = 0) -> torch.Tensor:
    """A matrix [1, len(values), width] that has exactly these singular values, in random directions."""
    generator = torch.Generator().manual_seed(seed)
    C = len(values)
    left = torch.linalg.qr(torch.randn(C, C, generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(width, C, generator=generator, dtype=torch.float64)).Q
    return (left * torch.tensor(values, dtype=torch.float64) @ right.T)[None]


def measured(make_audit, network, x, y, task="classification", **knobs):
    audit = make_audit(network, x, y, x[:4], y[:4], task=task, bootstrap=10, **knobs)
    fold = Sensitivity().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    return fold.finish()


def linear(weight: list[list[float]]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
    return layer


def test_a_linear_network_by_hand(make_audit):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)), rng.integers(0, 2, 9)
    found = measured(make_audit, nn.Sequential(linear([[3.0, 0, 0], [0, 4.0, 0]])), x, y)
    network, layer = found.network, found.layers["0"]
    assert network.mls == pytest.approx(4, rel=BY_HAND)
    assert network.mean_log_volume == network.log_mean_volume == pytest.approx(math.log(12), rel=BY_HAND)
    assert network.dimensionality == pytest.approx(25**2 / (9**2 + 16**2), rel=BY_HAND)
    assert network.mean_log_volume_centred == pytest.approx(math.log(math.sqrt(25 / 2)), rel=BY_HAND)
    assert layer.weight_spectral_norm == pytest.approx(4, rel=BY_HAND)
    assert layer.sharpness == pytest.approx(2 * (x**2).sum(1).mean(), rel=BY_HAND)
    assert network.sharpness == pytest.approx(2 * ((x**2).sum(1).mean() + 1), rel=BY_HAND)
    assert network.sharpness_trace == network.sharpness


@SMALL
@example([0.0, -3.4, -3.4, -3.4, -3.4, -3.4], 0, 0)  # just before the Gram matrix has lost too many digits
@given(st.lists(st.floats(-9, 3), min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 1000))
def test_log_volume_keeps_its_digits_whatever_the_spread(exponents, extra, seed):
    values = sorted((10**e for e in exponents), reverse=True)
    found = local_map(with_singular_values(values, len(values) + extra, seed), len(values) + extra, EPSILON)
    slack = 1e-13 * values[0] / values[-1] + 1e-10
    assert found.log_volume.item() == pytest.approx(sum(map(math.log, values)), abs=slack)
    assert found.largest.item() == pytest.approx(values[0], rel=ROUNDING)
    assert found.rank.item() == len(values)


@pytest.mark.parametrize("size", [1e-170, 1e-30, 1.0, 1e30, 1e170])
def test_size_alone_changes_nothing_but_size(size):
    values = [3.0, 2.0, 0.5]
    found = local_map(with_singular_values(values, 7) * size, 7, EPSILON)
    assert found.largest.item() == pytest.approx(3 * size, rel=ROUNDING, abs=0)
    assert found.log_volume.item() == pytest.approx(math.log(3) + 3 * math.log(size), rel=ROUNDING, abs=CANCELS)
    assert found.dimension.item() == pytest.approx(13.25**2 / (81 + 16 + 0.0625), rel=ROUNDING)


def test_scaled_and_zero_matrices_stand_side_by_side():
    K = with_singular_values([2.0, 1.0], 4)
    K = torch.cat([K, 0 * K, 1e-180 * K])
    assert singular_values(K)[:, 0].tolist() == pytest.approx([2, 0, 2e-180], rel=ROUNDING, abs=0)
    assert largest_singular_value(K).tolist() == pytest.approx([2, 0, 2e-180], rel=ROUNDING, abs=0)
    found = local_map(K, 4, EPSILON)
    assert found.rank.tolist() == [2, 0, 2]
    assert found.log_volume[1] == -math.inf and torch.isnan(found.dimension[1])


def test_a_lost_direction_is_a_lost_rank():
    K = with_singular_values([2.0, 1.0, 0.0], 5)
    found = local_map(K, 5, EPSILON)
    assert found.rank.item() == 2 and found.log_volume.item() == -math.inf


@pytest.mark.parametrize(("smallest", "rank"), [(1e-5, 1), (1e-3, 2)])
def test_single_precision_loses_its_rank_earlier(smallest, rank):
    K = with_singular_values([1.0, smallest], 784)
    assert local_map(K, 784, torch.finfo(torch.float32).eps).rank.item() == rank
    assert local_map(K, 784, EPSILON).rank.item() == 2


@SMALL
@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 5), st.integers(0, 1000))
def test_narrow_factor_keeps_the_singular_values(out, width, C, seed):
    generator = torch.Generator().manual_seed(seed)
    W, J = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((out, width), (1, C, out)))
    kept = min(C, out, width)
    expected = torch.linalg.svdvals(J @ W)[:, :kept]
    assert torch.allclose(singular_values(J @ narrow_factor(W))[:, :kept], expected, rtol=SOLVED, atol=CANCELS)
    assert spectral_norm(W) == pytest.approx(torch.linalg.matrix_norm(W, 2).item(), rel=ROUNDING)


@pytest.mark.parametrize("C", [2, 3, 10])
def test_centring_is_orthonormal_and_blind_to_a_common_shift(C):
    B = centring(C)
    assert torch.allclose(B @ B.T, torch.eye(C - 1, dtype=torch.float64), atol=1e-14)
    assert (B @ torch.ones(C, dtype=torch.float64)).abs().max() < 1e-14


@SMALL
@given(st.integers(2, 6), st.integers(1, 9), st.integers(-160, 160), st.floats(0, 1e6), st.integers(0, 1000))
def test_centred_volumes_from_the_gram_matrix_are_those_of_the_centred_map(C, width, size, common, seed):
    generator = torch.Generator().manual_seed(seed)
    K = torch.randn(4, C, width, generator=generator, dtype=torch.float64)
    K = K + common * torch.randn(4, 1, width, generator=generator, dtype=torch.float64)
    K[0] = 0
    expected = singular_values(centring(C) @ K).log().sum(1) + (C - 1) * size * math.log(10)
    expected[0] = -math.inf
    K = 10.0**size * K
    found = centred_log_volume(K, K @ K.mT, local_map(K, width, EPSILON).largest, width, EPSILON)
    assert torch.allclose(
        found, expected if width >= C - 1 else torch.full((4,), -math.inf).double(), rtol=LOSSY, atol=1e-8
    )


@pytest.mark.parametrize("common", [0.0, 1e2, 1e4, 1e6])
def test_nearly_equal_rows_hide_no_lost_centred_rank(make_audit, common):
    """Rows that differ in two directions only: a common part, however large, adds rounding and no third one."""
    differences = np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]])
    network = nn.Sequential(linear((differences + common * np.array([0.5, 0.3, 0.7])).tolist()))
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.array([0, 1, 2, 3] * 2)
    found = measured(make_audit, network, x, y).network
    assert found.rank_deficient_samples_centred == 8 and found.mean_log_volume_centred is None


def test_dependent_tokens_have_no_reach():
    X = torch.randn(3, 2, 4, dtype=torch.float64)
    X[1, 1] = 2 * X[1, 0]
    found = smallest_singular_value(X)
    assert found[1] == 0 and (found[[0, 2]] > 0).all()
    assert found[0].item() == pytest.approx(torch.linalg.svdvals(X[0])[-1].item(), rel=EXACT)
    assert (smallest_singular_value(torch.randn(3, 5, 4)) == 0).all()


@pytest.mark.parametrize("smallest", [0.5, 1e-2, 1e-3, 1e-4])
def test_squaring_costs_tokens_in_single_precision_less_than_their_own_rounding(smallest: float) -> None:
    X = with_singular_values([1.0, 0.3, smallest], 40).float()
    truth = torch.linalg.svdvals(X[0].double())[-1].item()
    rounding = torch.finfo(torch.float32).eps  # of an entry, relative to the largest singular value
    assert abs(smallest_singular_value(X).item() - truth) < rounding / 100
    X[0, 2] = 2 * X[0, 1]
    assert smallest_singular_value(X).item() == 0


def test_more_scores_than_inputs_leave_no_volume(make_audit):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 2)), rng.integers(0, 4, 9)
    network = measured(make_audit, nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 4)), x, y).network
    assert network.rank_deficient_samples == network.rank_deficient_samples_centred == 9
    assert network.mean_log_volume is network.log_mean_volume is network.mean_log_volume_centred is None
    assert network.mean_rank == 2 and network.mls > 0
    assert network.skipped == "no sample has a Jacobian of full rank, so every volume is zero and has no logarithm"
    bound = network.bounds[0]
    assert bound.id == "prop-3.4" and bound.left is None and bound.right is not None and bound.holds
    assert bound.skipped == (
        "every volume is zero, since the rank is below the number of scores: the inequality holds and says nothing"
    )


def test_rank_deficient_samples_count_as_volume_zero(make_audit):
    network = nn.Sequential(linear([[1.0, 0], [0, 1.0]]), nn.ReLU(), linear([[1.0, 0], [0, 1.0]]))
    with torch.no_grad():
        network[0].bias.zero_()
    x, y = np.array([[1.0, 2], [2, 1], [-1, 1], [3, 3]]), np.array([0, 1, 0, 1])
    found = measured(make_audit, network, x, y).network
    assert found.rank_deficient_samples == 1 and found.mean_rank == 1.75
    assert found.mean_log_volume == pytest.approx(0, abs=1e-15)
    assert found.log_mean_volume == pytest.approx(math.log(3 / 4), rel=BY_HAND)
    assert found.log_network_volume == pytest.approx(math.log(3 / 4 + 1), rel=BY_HAND)


def test_one_score_has_a_volume_but_nothing_to_centre(make_audit):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)), rng.integers(0, 2, 9)
    network = measured(make_audit, nn.Sequential(nn.Linear(3, 1)), x, y, "binary").network
    assert network.mean_log_volume == pytest.approx(math.log(network.mls), rel=ROUNDING)
    assert network.dimensionality == pytest.approx(1, rel=BY_HAND)
    assert network.mean_log_volume_centred is None
    compares = "one of the volumes compares a model's outputs with each other"
    assert network.skipped == f"{compares}, and this model has only one output"


def test_histogram_holds_every_sample(make_audit):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)), rng.integers(0, 2, 50)
    network = measured(make_audit, nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)), x, y).network
    histogram = network.histogram
    assert len(histogram.edges) == 41 and sum(histogram.counts) == 50
    assert histogram.edges[0] <= network.mls <= histogram.edges[-1]
