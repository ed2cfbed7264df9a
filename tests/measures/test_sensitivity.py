"""Sensitivity against brute force, its bounds as properties, its degenerate cases as sentences."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import as_data, as_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from references import sensitivity as reference
from torch import nn

from audit.errors import ModelError
from audit.measure import Measurement
from audit.measures.sensitivity import Sensitivity
from audit.prepare import set_table
from audit.settings import Settings

EXACT = 1e-8
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = x + torch.relu(self.a(x))
        return self.head(x + torch.tanh(self.b(x)))


class Attention(nn.Module):
    def __init__(self, tokens: int = 3) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(tokens, 4))
        self.embed, self.q, self.k, self.v = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.embed(x) + self.place
        weights = (self.q(x) @ self.k(x).mT / 2).softmax(-1)
        return self.head(self.norm(x + weights @ self.v(x)).mean(1))


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


def _mlp(*widths: int, act: type[nn.Module] = nn.ReLU, bias: bool = True, norm: bool = False) -> nn.Sequential:
    parts: list[nn.Module] = []
    for place, (a, b) in enumerate(pairwise(widths)):
        parts.append(nn.Linear(a, b, bias=bias))
        if place < len(widths) - 2:
            parts += [nn.BatchNorm1d(b)] * norm + [act()]
    return nn.Sequential(*parts)


def _settled(network: nn.Module) -> nn.Module:
    """Norm layers with statistics and factors that are not 0 and 1."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight, 1, 0.3)
    return network


CONV = [nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 2, groups=1), nn.Flatten()]
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str], str]] = {
    "relu": (lambda: _mlp(6, 9, 7, 3), (6,), ["0", "2", "4"], "classification"),
    "tanh": (lambda: _mlp(6, 9, 3, act=nn.Tanh), (6,), ["0", "2"], "classification"),
    "gelu": (lambda: _mlp(6, 9, 3, act=nn.GELU), (6,), ["0", "2"], "classification"),
    "wide-input": (lambda: _mlp(40, 8, 3), (40,), ["0", "2"], "classification"),
    "batch-norm": (lambda: _mlp(6, 9, 8, 3, norm=True), (6,), ["0", "3", "6"], "classification"),
    "bias-free": (lambda: _mlp(6, 9, 3, bias=False), (6,), ["0", "2"], "classification"),
    "linear": (lambda: _mlp(6, 3), (6,), ["0"], "classification"),
    "binary": (lambda: _mlp(6, 9, 1), (6,), ["0", "2"], "binary"),
    "regression": (lambda: _mlp(6, 9, 2), (6,), ["0", "2"], "regression"),
    "one-weight": (lambda: _mlp(1, 1), (1,), ["0"], "regression"),
    "conv": (
        lambda: nn.Sequential(*CONV, nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3)),
        (1, 8, 8),
        ["4", "6"],
        "classification",
    ),
    "residual": (Residual, (5,), ["a", "b", "head"], "classification"),
    "attention": (Attention, (3, 5), ["embed", "q", "k", "v", "head"], "classification"),
    "flat-tokens": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
        (3, 5),
        ["0", "3"],
        "classification",
    ),
}


def measure(make_audit, network, x, y, task="classification", **knobs) -> Measurement:
    audit = make_audit(network, x, y, x[:4], y[:4], task=task, **{"bootstrap": 20, **knobs})
    fold = Sensitivity().start(audit)
    for record in audit.train:
        fold.see(record)
    measurement = fold.finish()
    json.dumps([asdict(measurement.network), {k: asdict(v) for k, v in measurement.layers.items()}], allow_nan=False)
    return measurement


def samples(shape: tuple[int, ...], task: str, n: int = 13, seed: int = 0, outputs: int = 3):
    rng = np.random.default_rng(seed)
    y = {"classification": rng.integers(0, 3, n), "binary": rng.integers(0, 2, n)}.get(task)
    return rng.normal(size=(n, *shape)), rng.normal(size=(n, outputs)) if y is None else y


@pytest.fixture(params=NETWORKS)
def case(request, make_audit):
    build, shape, dense, task = NETWORKS[request.param]
    torch.manual_seed(1)
    network = _settled(build())
    outputs = network.eval()(torch.zeros(2, *shape)).shape[1]
    x, y = samples(shape, task, outputs=outputs)
    truth = reference.numbers(copy.deepcopy(network), torch.from_numpy(x), dense)
    return measure(make_audit, network, x, y, task), truth, dense


def test_every_number_is_the_brute_force_one(case):
    found, truth, dense = case
    for name, value in truth["network"].items():
        assert getattr(found.network, name) == (value if value is None else pytest.approx(value, rel=EXACT)), name
    for path in dense:
        for name, value in truth["layers"][path].items():
            if hasattr(found.layers[path], name):
                expected = value if value is None else pytest.approx(value, rel=EXACT)
                assert getattr(found.layers[path], name) == expected, (path, name)


def test_both_sides_of_every_bound_are_the_brute_force_ones(case):
    found, truth, _ = case
    for bound in found.network.bounds:
        if bound.left_out or bound.skipped or bound.id not in truth["bounds"]:
            continue
        left, right = truth["bounds"][bound.id]
        assert (math.exp(bound.left) if bound.log else bound.left) == pytest.approx(left, rel=EXACT), bound.id
        assert (math.exp(bound.right) if bound.log else bound.right) == pytest.approx(right, rel=EXACT), bound.id
    for name, value in truth["chain"].items():
        assert getattr(found.network.chain, name) == pytest.approx(value, rel=EXACT)


def test_every_bound_holds_and_the_chain_ascends(case):
    found, _, _ = case
    assert all(bound.holds or bound.skipped for bound in found.network.bounds)
    assert [bound.id for bound in found.network.bounds][:5] == [
        "prop-3.4",
        "prop-3.6",
        "prop-3.8",
        "prop-3.10",
        "prop-e.4",
    ]
    if (chain := found.network.chain) is not None:
        assert (
            chain.A <= chain.B * (1 + 1e-12) and chain.B <= chain.C * (1 + 1e-12) and chain.C <= chain.D * (1 + 1e-12)
        )


@QUICK
@given(
    widths=st.lists(st.integers(1, 7), min_size=3, max_size=5),
    act=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid]),
    seed=st.integers(0, 10**6),
    size=st.floats(-2, 2),
)
def test_bounds_hold_on_random_networks(make_audit, widths, act, seed, size):
    torch.manual_seed(seed)
    network = _mlp(*widths, act=act)
    with torch.no_grad():
        for value in network.parameters():
            value.mul_(10**size)
    x, y = samples((widths[0],), "regression", n=7, seed=seed, outputs=widths[-1])
    try:
        found = measure(make_audit, network, x * 10**-size, y, "regression", bootstrap=2)
    except ModelError as error:  # a random network may be dead: then the layer finder says so
        assert "no dense layer" in str(error)
        return
    for bound in found.network.bounds:
        assert bound.holds is not False, bound
        assert bound.left is None or bound.right is None or bound.left <= bound.right + 1e-9 * (1 + abs(bound.right))
        assert bound.tightness is None or 0 <= bound.tightness <= 1 + 1e-8


@QUICK
@given(seed=st.integers(0, 10**6), logs=st.lists(st.floats(-3, 3), min_size=9, max_size=9))
def test_rescaling_neurons_leaves_input_sensitivity_and_adaptive_sharpness(make_audit, seed, logs):
    torch.manual_seed(seed)
    network, x_y = _mlp(6, 9, 3), samples((6,), "classification", seed=seed)
    rescaled = copy.deepcopy(network)
    with torch.no_grad():
        factor = torch.tensor(logs).exp()
        rescaled[0].weight.mul_(factor[:, None])
        rescaled[0].bias.mul_(factor)
        rescaled[2].weight.div_(factor)
    before, after = (measure(make_audit, net, *x_y, bootstrap=2).network for net in (network, rescaled))
    for name in (
        "mls",
        "mean_log_volume",
        "dimensionality",
        "input_invariant_mls",
        "normalized_mls",
        "adaptive_sharpness",
    ):
        value = getattr(before, name)
        assert getattr(after, name) == (value if value is None else pytest.approx(value, rel=1e-5)), name


def test_numbers_do_not_depend_on_chunks_or_order(make_audit):
    torch.manual_seed(0)
    network = Attention()
    x, y = samples((3, 5), "classification", n=40)
    whole = measure(make_audit, network, x, y).network
    chunked = make_audit(network, x, y, x[:4], y[:4], bootstrap=20)
    object.__setattr__(chunked.capture, "chunk", 7)
    fold = Sensitivity().start(chunked)
    for record in chunked.train:
        fold.see(record)
    order = np.random.default_rng(1).permutation(len(x))
    for other in (fold.finish().network, measure(make_audit, network, x[order], y[order]).network):
        for name in ("sharpness", "mls", "nmls", "adaptive_sharpness", "mean_log_volume_centred"):
            assert getattr(other, name) == pytest.approx(getattr(whole, name), rel=1e-11), name


class FourAtOnce(nn.Module):
    """A network that takes exactly four samples, with a convolution and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.head = nn.Conv1d(1, 2, 3), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.conv(x.reshape(4, 1, 6)).reshape(4, 8)
        return self.head(x + torch.relu(self.mix(x)))


class AnyNumber(FourAtOnce):
    def forward(self, x):
        x = self.conv(x.reshape(-1, 1, 6)).reshape(-1, 8)
        return self.head(x + torch.relu(self.mix(x)))


def test_a_fixed_batch_changes_no_number():
    torch.manual_seed(0)
    free, (x, y) = AnyNumber(), samples((6,), "classification", n=10)
    fixed = FourAtOnce()
    fixed.load_state_dict(free.state_dict())
    found = []
    for network, batch in ((free, None), (fixed, 4)):
        model = as_model(network, (6,))
        model = replace(model, input=replace(model.input, batch=batch))
        audit = set_table(model, as_data(x, y, x[:4], y[:4]), "classification", Settings(bootstrap=20))[0]
        fold = Sensitivity().start(audit)
        for record in audit.train:
            fold.see(record)
        found.append(fold.finish())
    for name in ("sharpness", "adaptive_sharpness", "mls", "nmls", "sharpness_trace"):
        assert getattr(found[1].network, name) == pytest.approx(getattr(found[0].network, name), rel=1e-11), name
    assert found[1].layers["mix"].skip.skip_mls == pytest.approx(found[0].layers["mix"].skip.skip_mls, rel=1e-11)


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
    assert found.sharpness_trace == pytest.approx(trace, rel=1e-9)
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
    assert (
        found.sharpness_trace_skipped == "a layer is used more than once, so the scores are not linear in its weights"
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
    assert eight.left == pytest.approx(rest.network.mls, rel=1e-12)
    assert pytest.approx(rest.network.chain.D, rel=1e-12) == found.network.chain.D


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
