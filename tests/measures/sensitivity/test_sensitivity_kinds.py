"""Sensitivity of networks with skips, convolutions, curvature, tokens, shared weights or zero inputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from references import sensitivity as reference
from sensitivity_cases import NETWORKS, Residual, _mlp, measure, samples
from tolerances import EXACT, ROUNDING, SOLVED
from torch import nn

from audit.measures.sensitivity.measure import Sensitivity


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(11, 4), nn.GRU(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, ids):
        return self.head(self.cell(self.words(ids))[0][:, -1])


class Twice(nn.Module):
    """One layer called twice, and a head that shares the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.out = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids):
        return self.out(torch.relu(self.mix(torch.relu(self.mix(self.words(ids).mean(1))))))


def test_skip_takes_its_share_off(make_audit):
    torch.manual_seed(0)
    network, (x, y) = Residual(), samples((5,), "classification")
    truth = reference.numbers(copy.deepcopy(network), torch.from_numpy(x), ["a", "b", "head"])["layers"]
    found = measure(make_audit, network, x, y).layers
    assert found["head"].skip is None
    for path in ("a", "b"):
        skip = found[path].skip
        assert skip.total_mls == pytest.approx(truth[path]["total_mls"], rel=EXACT)
        assert skip.skip_mls == pytest.approx(truth[path]["skip_mls"], rel=EXACT)
        assert skip.holds and skip.left == skip.total_mls - skip.skip_mls


def test_first_layer_of_a_residual_network_says_that_other_ways_lead_past(make_audit):
    torch.manual_seed(0)
    network = measure(make_audit, Residual(), *samples((5,), "classification")).network
    assert network.bounds_input == "the model's input, through layer a alone: other ways lead past it (Eq. 17)"
    assert network.mls != network.chain.A


def test_convolution_bounds_start_at_the_first_dense_layer(make_audit):
    torch.manual_seed(0)
    build, shape, _, task = NETWORKS["conv"]
    network = measure(make_audit, build(), *samples(shape, task)).network
    assert network.bounds_input == "the input of 4, the first dense layer: no dense layer is fed by the model's input"
    assert network.parameters_beyond_dense == 30 + 52
    assert network.sharpness_trace == network.sharpness


def test_trace_of_a_curved_regression_is_that_of_the_hessian(make_audit):
    torch.manual_seed(0)
    network, (x, y) = _mlp(3, 4, 2, act=nn.Tanh), samples((3,), "regression", n=6, outputs=2)
    found = measure(make_audit, network, x, y, "regression").network
    network = network.double()
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    values = [value.detach() for value in network.parameters()]
    names = [name for name, _ in network.named_parameters()]

    def loss(*given):
        f = torch.func.functional_call(network, dict(zip(names, given, strict=True)), (inputs,))
        return ((f - targets) ** 2).sum() / 2 / len(inputs)

    hessian = torch.autograd.functional.hessian(loss, tuple(values))
    trace = sum(hessian[k][k].reshape(v.numel(), v.numel()).trace().item() for k, v in enumerate(values))
    assert found.sharpness_trace == pytest.approx(trace, rel=SOLVED)
    assert abs(found.sharpness_trace - found.sharpness) > 1e-3 * found.sharpness


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (
            lambda: _mlp(6, 9, 3, act=nn.Tanh),
            "the network is curved in its weights and ½‖f − y‖² is not its loss, so the trace has no targets",
        ),
        (
            lambda: nn.Sequential(
                nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)
            ),
            "the scores are curved in 1.weight, which no dense layer holds",
        ),
    ],
)
def test_no_trace_has_its_reason(make_audit, network, sentence):
    found = measure(make_audit, network(), *samples((6,), "classification")).network
    assert found.sharpness_trace is None and found.sharpness_trace_skipped == sentence


def test_integer_inputs_have_no_input_sensitivity_but_all_parameters_count(make_audit):
    torch.manual_seed(0)
    network, rng = Text(), np.random.default_rng(0)
    x, y = rng.integers(0, 11, (9, 5)), rng.integers(0, 2, 9)
    truth = reference.numbers(copy.deepcopy(network), torch.from_numpy(x), ["head"])
    found = measure(make_audit, network, x, y).network
    for name, value in truth["network"].items():
        assert getattr(found, name) == pytest.approx(value, rel=EXACT), name
    assert found.mls is None and found.rank_deficient_samples is None and found.histogram is None
    assert (
        found.skipped
        == "the input is made of integers, such as token ids, so there is no derivative with respect to it"
    )


def test_weights_used_twice_count_once_with_their_whole_gradient(make_audit):
    torch.manual_seed(0)
    network, rng = Twice(), np.random.default_rng(0)
    x, y = rng.integers(0, 6, (9, 5)), rng.integers(0, 6, 9)
    truth = reference.numbers(copy.deepcopy(network), torch.from_numpy(x), ["mix", "out"])["network"]
    found = measure(make_audit, network, x, y).network
    assert found.sharpness == pytest.approx(truth["sharpness"], rel=EXACT)
    assert found.adaptive_sharpness == pytest.approx(truth["adaptive_sharpness"], rel=EXACT)
    assert found.sharpness_trace_skipped == (
        "a layer is fed by its own earlier answers, so the scores are not linear in its weights"
    )
    assert all(bound.holds is not False for bound in found.bounds)


def test_zero_inputs_are_left_out_of_both_sides_and_counted(make_audit):
    torch.manual_seed(0)
    network, (x, y) = _mlp(6, 9, 3), samples((6,), "classification")
    x[:2] = 0
    found = measure(make_audit, network, x, y)
    assert found.layers["0"].degenerate_inputs == 2
    eight = next(bound for bound in found.network.bounds if bound.id == "prop-3.8")
    rest = measure(make_audit, network, x[2:], y[2:])
    assert eight.left_out == 2 and eight.holds
    assert eight.left == pytest.approx(rest.network.mls, rel=ROUNDING)
    assert pytest.approx(rest.network.chain.D, rel=ROUNDING) == found.network.chain.D


def test_no_usable_sample_is_a_sentence(make_audit):
    torch.manual_seed(0)
    x, y = samples((6,), "classification")
    found = measure(make_audit, _mlp(6, 9, 3), np.zeros_like(x), y).network
    assert found.chain is None
    assert found.bounds[2].skipped == (
        "no sample can be used: the input is zero, its tokens are linearly dependent, or the weights are shared"
    )


def test_more_tokens_than_features_leave_the_layer_out_of_the_bounds(make_audit):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
    found = measure(make_audit, network, *samples((3, 2), "classification"))
    assert found.layers["0"].degenerate_inputs == 13
    bounds = {bound.id: bound for bound in found.network.bounds}
    assert bounds["prop-3.8"].holds is None and bounds["prop-3.10"].holds
    assert bounds["prop-e.4"].skipped.startswith("the first layer acts on several tokens")


def test_sampled_adaptive_sharpness_meets_the_closed_form_on_a_linear_network(make_audit):
    torch.manual_seed(0)
    network, (x, y) = _mlp(6, 3), samples((6,), "classification")
    found = measure(make_audit, network, x, y, adaptive_draws=400).network
    error = found.adaptive_sharpness_sampled_std
    assert 0 < error < 0.1 * found.adaptive_sharpness
    assert abs(found.adaptive_sharpness_sampled - found.adaptive_sharpness) < 4 * error
    assert measure(make_audit, network, x, y).network.adaptive_sharpness_sampled is None


def test_intervals_hold_their_number_and_repeat_with_the_seed(make_audit):
    torch.manual_seed(0)
    network, (x, y) = _mlp(6, 9, 3), samples((6,), "classification", n=60)
    first, again, other = (measure(make_audit, network, x, y, bootstrap=300, seed=seed).network for seed in (0, 0, 1))
    assert first == again and first.mls_ci95 != other.mls_ci95
    for name in ("sharpness", "mls", "nmls", "dimensionality", "adaptive_sharpness", "matrix_normalized_sharpness"):
        lower, upper = getattr(first, f"{name}_ci95")
        assert lower < getattr(first, name) < upper, name
    spread = np.array(first.mls_ci95)[1] - np.array(first.mls_ci95)[0]
    assert 0.001 * first.mls < spread < first.mls


def test_single_precision_stays_near(make_audit):
    torch.manual_seed(0)
    network, (x, y) = _mlp(6, 9, 3), samples((6,), "classification")
    double, single = (measure(make_audit, network, x, y, precision=p).network for p in ("float64", "float32"))
    for name in ("sharpness", "mls", "nmls", "adaptive_sharpness", "dimensionality"):
        assert getattr(single, name) == pytest.approx(getattr(double, name), rel=1e-4), name


def test_every_number_has_its_card():
    numbers = {card.id for card in Sensitivity().cards}
    assert len(numbers) == len(Sensitivity().cards)
    for name in (
        "sharpness",
        "mls",
        "nmls",
        "mean_log_volume",
        "log_mean_volume",
        "log_network_volume",
        "chain",
        "bounds",
        "mean_log_volume_centred",
        "rank_deficient_samples",
        "dimensionality",
        "adaptive_sharpness",
        "skip",
        "input_invariant_mls",
        "normalized_mls",
        "matrix_normalized_sharpness",
        "weight_spectral_norm",
    ):
        assert f"sensitivity.{name}" in numbers
    assert all(card.meaning and card.formula and card.source for card in Sensitivity().cards)


class Tempered(nn.Module):
    """Scores divided by a learnt temperature: a parameter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.temperature = nn.Linear(5, 3), nn.Parameter(torch.tensor(1.3))

    def forward(self, x):
        return self.head(x) / self.temperature


class Doubled(nn.Module):
    """Answers of a layer that are overwritten right behind it, by no module that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x).mul_(2))).mul_(2)


@pytest.mark.parametrize(("network", "paths"), [(Tempered, ["head"]), (Doubled, ["a", "b"])])
def test_a_bare_number_counts_and_what_is_overwritten_is_not_lost(make_audit, network, paths):
    torch.manual_seed(0)
    built, (x, y) = network(), samples((5,), "classification")
    truth = reference.numbers(copy.deepcopy(built), torch.from_numpy(x), paths)["network"]
    found = measure(make_audit, built, x, y).network
    for name in ("sharpness", "adaptive_sharpness", "mls", "input_invariant_mls"):
        assert getattr(found, name) == pytest.approx(truth[name], rel=EXACT), name


@pytest.mark.parametrize("options", [{"kernel_size": 2, "stride": 2}, {"kernel_size": 3, "padding": 1}])
def test_pixels_of_overlapping_patches_count_once_where_there_are_convolutions_alone(make_audit, options):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 2, **options), nn.ReLU(), nn.Conv2d(2, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    x, y = samples((1, 4, 4), "classification")
    given = torch.from_numpy(x)
    slopes = torch.stack([torch.autograd.functional.jacobian(network.double(), one[None])[0, :, 0] for one in given])
    expected = (slopes.flatten(2) * given.flatten(1)[:, None]).square().sum((1, 2)).mean()
    found = measure(make_audit, network, x, y, conv=True).network
    assert found.input_invariant_mls == pytest.approx(float(expected), rel=EXACT)
