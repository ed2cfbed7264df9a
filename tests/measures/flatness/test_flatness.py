"""Flatness against the definitions, under rescaling, solved by hand, and where it does not exist."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from references import flatness as reference
from tolerances import EXACT, SOLVED
from torch import Tensor, nn
from zoo import ZOO, Tied, build

from audit.measures.contract import Audit, Measurement
from audit.measures.flatness import terms
from audit.measures.flatness.measure import Flatness
from audit.network import second_derivatives
from audit.network.record import Products

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def measure(audit: Audit) -> Measurement:
    fold = Flatness().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    return fold.finish()


def flatness_of(make_audit, network, x, y, task="classification", **changes) -> Measurement:  # type: ignore[no-untyped-def]
    x, y = np.asarray(x), np.asarray(y)
    return measure(make_audit(network, x, y, x[:2], y[:2], task=task, bootstrap=50, **changes))


def close(left: object, right: object, tolerance: float) -> None:
    scale = max(1e-12, float(np.abs(np.asarray(right)).max()))
    assert np.allclose(np.asarray(left), np.asarray(right), rtol=0, atol=tolerance * scale), (left, right)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_kind_of_network_agrees_with_the_definitions(make_audit, name) -> None:
    network, x, y = build(name, n=9)
    task = ZOO[name].task
    x_np, y_np = x.numpy(), y.numpy()
    audit = make_audit(copy.deepcopy(network), x_np, y_np, x_np[:2], y_np[:2], task=task, bootstrap=50)
    found = measure(audit)
    assert set(found.layers) == {layer.name for layer in audit.layers}
    for layer in audit.layers:
        H = reference.hessian(audit.network, layer.module, x, y, task)
        expected = reference.layer_numbers(layer.weight(audit.network), H)
        block = asdict(found.layers[layer.name])
        assert block["hessian"] == "exact" and block["skipped"] is None
        for key, value in expected.items():
            close(block[key], value, EXACT)
    network_block = asdict(found.network)
    for key, of, fold in (
        ("kappa_max", "kappa", max), ("kappa_sum", "kappa", sum),
        ("kappa_tau_max", "kappa_tau", max), ("kappa_tau_sum", "kappa_tau", sum),
        ("rho_max", "rho", max), ("rho_sum", "rho_sigma", sum),
        ("rho_columns_max", "rho_columns", max), ("rho_columns_sum", "rho_columns_sigma", sum),
        ("lambda_max", "lambda_max", max), ("lambda_max_sum", "lambda_max", sum),
        ("trace_max", "trace", max), ("trace_sum", "trace", sum),
        ("relative_flatness_sum", "relative_flatness", sum),
    ):  # fmt: skip
        assert network_block[key] == pytest.approx(fold(getattr(block, of) for block in found.layers.values()))
    json.dumps([asdict(block) for block in (*found.layers.values(), found.network)], allow_nan=False)


@QUICK
@given(factors=st.lists(st.floats(0.05, 20.0), min_size=2, max_size=2), name=st.sampled_from(["relu", "bias-free"]))
def test_rescaling_layers_changes_no_invariant_number(make_audit, factors, name) -> None:
    network, x, y = build(name, n=12)
    before = flatness_of(make_audit, copy.deepcopy(network), x, y)
    layers = [module for module in network if isinstance(module, nn.Linear)]
    scales = [factors[0], factors[1], 1 / (factors[0] * factors[1])]
    product = 1.0
    for layer, scale in zip(layers, scales, strict=True):
        product *= scale
        layer.weight.mul_(scale)
        if layer.bias is not None:
            layer.bias.mul_(product)
    after = flatness_of(make_audit, network, x, y)
    for key in ("kappa", "kappa_tau", "rho", "rho_sigma", "rho_neurons", "rho_columns", "rho_column_neurons"):
        for layer in before.layers:
            close(getattr(after.layers[layer], key), getattr(before.layers[layer], key), SOLVED)
    for key in ("kappa_max", "kappa_sum", "kappa_tau_max", "kappa_tau_sum", "rho_max", "rho_sum", "rho_columns_sum"):
        close(getattr(after.network, key), getattr(before.network, key), SOLVED)


@QUICK
@given(seed=st.integers(0, 1000))
def test_rescaling_neurons_changes_rho_in_neither_reading(make_audit, seed) -> None:
    network, x, y = build("relu", n=12)
    before = flatness_of(make_audit, copy.deepcopy(network), x, y)
    layers = [module for module in network if isinstance(module, nn.Linear)]
    generator = torch.Generator().manual_seed(seed)
    for layer, after in pairwise(layers):
        scale = torch.rand(layer.out_features, generator=generator, dtype=torch.float64) * 4 + 0.1
        layer.weight.mul_(scale[:, None])
        layer.bias.mul_(scale)
        after.weight.div_(scale)
    found = flatness_of(make_audit, network, x, y)
    for key in ("rho", "rho_sigma", "rho_neurons", "rho_columns", "rho_columns_sigma", "rho_column_neurons"):
        for layer in before.layers:
            close(getattr(found.layers[layer], key), getattr(before.layers[layer], key), SOLVED)
    moved = [abs(found.layers[n].kappa_tau / before.layers[n].kappa_tau - 1) for n in before.layers]
    assert max(moved) > 1e-3, "κ_τ is not neuron-wise invariant; if it stays, nothing was rescaled"


@pytest.mark.parametrize("name", ["relu", "tanh", "tokens", "regression"])
def test_neither_chunks_nor_order_matter(make_audit, name) -> None:
    network, x, y = build(name, n=11)
    task = ZOO[name].task
    whole = flatness_of(make_audit, copy.deepcopy(network), x, y, task)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    shuffled = flatness_of(make_audit, copy.deepcopy(network), x[order], y[order], task)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy(), task=task, bootstrap=50)
    object.__setattr__(audit.capture, "chunk", 3)
    chunked = measure(audit)
    for layer, block in whole.layers.items():
        for key, value in asdict(block).items():
            if isinstance(value, float) and key != "lambda_max_residual":
                close(getattr(chunked.layers[layer], key), value, EXACT)
                close(getattr(shuffled.layers[layer], key), value, EXACT)


def one_layer(W: Tensor) -> nn.Linear:
    layer = nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=torch.float64)
    layer.weight.data = W.double()
    return layer


def test_one_weight_by_hand(make_audit) -> None:
    """½ (w x − y)²: H = mean x² = 5/2 over x = 1, 2; w = 3."""
    found = flatness_of(make_audit, one_layer(torch.tensor([[3.0]])), [[1.0], [2.0]], [[0.0], [1.0]], "regression")
    block = next(iter(found.layers.values()))
    assert (block.lambda_max, block.trace, block.weight_norm_squared) == pytest.approx((2.5, 2.5, 9.0))
    for key in ("kappa", "kappa_tau", "rho", "rho_sigma", "rho_columns", "relative_flatness"):
        assert getattr(block, key) == pytest.approx(22.5)
    assert (block.rho_neurons, block.rho_column_neurons) == (pytest.approx([22.5]), pytest.approx([22.5]))


def test_identity_by_hand(make_audit) -> None:
    """½ ‖x − y‖² through W = 1 on the unit vectors: S = 1, mean x xᵀ = 1/d, so H = 1/d in all d² weights."""
    d = 4
    found = flatness_of(make_audit, one_layer(torch.eye(d)), np.eye(d), np.zeros((d, d)), "regression")
    block = next(iter(found.layers.values()))
    assert (block.lambda_max, block.trace) == pytest.approx((1 / d, d))
    assert (block.kappa, block.kappa_tau) == pytest.approx((1.0, d * d))
    assert block.rho_neurons == pytest.approx([1 / d] * d) and block.rho_column_neurons == pytest.approx([1 / d] * d)
    assert block.relative_flatness == pytest.approx(d)


def test_orthogonal_weights_by_hand(make_audit) -> None:
    """With Wᵀ W = 1 and S = 1, relative flatness is ‖x‖² d, and every column has ρ = mean x_k²."""
    d = 5
    W = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    x = np.random.default_rng(0).normal(size=(6, d))
    found = flatness_of(make_audit, one_layer(W), x, np.zeros((6, d)), "regression")
    block = next(iter(found.layers.values()))
    assert block.relative_flatness == pytest.approx(d * (x**2).sum(1).mean())
    assert block.rho_column_neurons == pytest.approx((x**2).mean(0).tolist())
    assert block.lambda_max == pytest.approx(float(np.linalg.eigvalsh(x.T @ x / 6)[-1]))


def test_samples_that_are_all_alike_leave_one_outer_product(make_audit) -> None:
    """Two logits, W = 0: p = ½ each, Λ has the one eigenvalue ½, so λ_max = Tr H = ½ ‖x‖²; no resample differs."""
    x = np.array([[3.0, 4.0]] * 3)
    found = flatness_of(make_audit, one_layer(torch.zeros(2, 2)), x, [0, 1, 0])
    block = next(iter(found.layers.values()))
    assert (block.lambda_max, block.trace) == pytest.approx((12.5, 12.5))
    assert block.trace_ci95 == pytest.approx((12.5, 12.5)) and block.lambda_max_ci95 == pytest.approx((12.5, 12.5))
    assert (block.kappa, block.kappa_tau, block.rho, block.relative_flatness) == (0.0, 0.0, 0.0, 0.0)
    assert block.notes == ["all weights are zero, so every number that is weighted by them is zero"]


def test_a_loss_of_exactly_zero_is_flat_in_words(make_audit) -> None:
    found = flatness_of(make_audit, one_layer(1e6 * torch.eye(2)), np.eye(2), [0, 1])
    block = next(iter(found.layers.values()))
    assert (block.trace, block.lambda_max, block.kappa, block.rho, block.lambda_max_residual) == (0, 0, 0, 0, 0)
    assert block.notes == ["the Hessian is zero on these samples: the loss is not curved in these weights at all"]


def test_a_negative_trace_is_called_no_minimum(make_audit) -> None:
    """f = tanh(z) far above its target where tanh is curved: the residual outweighs Gauss–Newton, H < 0."""
    network = nn.Sequential(one_layer(torch.tensor([[1.0]])), nn.Tanh(), one_layer(torch.tensor([[1.0]])))
    found = flatness_of(make_audit, network, [[1.0], [1.1]], [[-50.0], [-50.0]], "regression")
    block = found.layers["0"]
    assert block.trace < 0 and block.lambda_max < 0 and block.kappa_tau < 0
    assert block.notes == [
        "the trace is negative: the weights are at no minimum of the train loss, so flatness is not defined here",
        "λ_max is negative: the train loss curves downwards in every direction of these weights",
    ]


def test_a_layer_fed_by_itself_is_skipped_with_its_reason(make_audit) -> None:
    torch.manual_seed(0)
    x, y = np.random.default_rng(0).normal(size=(8, 6)), np.arange(8) % 3
    found = flatness_of(make_audit, Tied().double(), x, y)
    block = found.layers["shared"]
    assert block.trace is None and block.kappa is None and block.rho_neurons == []
    assert block.skipped == (
        "it is used 2 times and is fed by its own earlier answers, so its input moves with its weights; the measure "
        "needs an input that does not"
    )
    assert found.network.layers == ["head"] and found.network.notes == [f"shared is not among them: {block.skipped}"]
    assert found.network.trace_sum == found.layers["head"].trace


class Siamese(nn.Module):
    """One layer on both halves of the input, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.each(x[:, :3])) * torch.tanh(self.each(x[:, 3:])))


def test_calls_side_by_side_are_measured_with_their_cross_terms(make_audit) -> None:
    torch.manual_seed(0)
    network = Siamese().double().requires_grad_(False)
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    found = flatness_of(make_audit, copy.deepcopy(network), x, y)
    expected = reference.layer_numbers(network.each.weight, reference.hessian(network, "each", x, y))
    for key, value in expected.items():
        close(getattr(found.layers["each"], key), value, EXACT)


class Shared(nn.Module):
    """Two layers that hold one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


def test_layers_that_share_a_weight_are_skipped_and_the_network_says_so(make_audit) -> None:
    x, y = np.random.default_rng(0).normal(size=(8, 4)), np.arange(8) % 4
    found = flatness_of(make_audit, Shared().double(), x, y)
    assert found.layers["a"].skipped == (
        "its weights are also those of b, so the loss is curved by them in both places at once; the Hessian of this "
        "layer alone does not exist"
    )
    assert found.network.skipped == "no dense layer could be measured; each layer says why"
    assert found.network.kappa_max is None


class Mixed(nn.Module):
    """Dense layers over tokens that talk to each other through a curved network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        return self.head(torch.tanh(h.cumsum(1))).square().sum(1)


def hadamard(start: int, shape: tuple[int, ...], stream: int, like: Tensor) -> Tensor:
    """Row `stream` of a Hadamard matrix: over all rows these signs are exactly uncorrelated."""
    H = torch.ones(1, 1, dtype=torch.float64)
    while len(H) < 64:
        H = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), H)
    return H[stream % 64, : shape[1] * shape[2]].reshape(1, *shape[1:]).expand(shape)


@pytest.mark.parametrize("network", [Mixed(), nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))])
def test_probing_with_uncorrelated_signs_gives_the_exact_numbers(make_audit, monkeypatch, network) -> None:
    network = network.double()
    tokens = (5, 4) if isinstance(network, Mixed) else (4,)
    x = torch.randn(6, *tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6) % 3
    exact = flatness_of(make_audit, copy.deepcopy(network), x, y)
    monkeypatch.setattr(second_derivatives, "EXACT_UNITS", 0)
    monkeypatch.setattr(second_derivatives, "EXACT_PRODUCTS", 0)
    monkeypatch.setattr(terms, "probes", lambda samples: 64)
    monkeypatch.setattr(terms, "signs", hadamard)
    probed = flatness_of(make_audit, copy.deepcopy(network), x, y)
    first = next(iter(probed.layers.values()))
    assert first.hessian == "estimated"
    assert first.notes[-1].endswith("estimated from random signs, and its noise is inside the intervals")
    for layer, block in probed.layers.items():
        for key in (
            "trace",
            "rho_sigma",
            "rho_columns_sigma",
            "relative_flatness",
            "rho_neurons",
            "rho_column_neurons",
        ):
            close(getattr(block, key), getattr(exact.layers[layer], key), EXACT)


def test_signs_are_fair_and_uncorrelated() -> None:
    signs = second_derivatives.signs(17, (4000, 3, 4), 5, torch.zeros(1, dtype=torch.float64)).flatten(1)
    other = second_derivatives.signs(17, (4000, 3, 4), 6, torch.zeros(1, dtype=torch.float64)).flatten(1)
    covariance = signs.T @ signs / 4000 - torch.eye(12)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    for noise in (signs.mean(0), covariance, (signs * other).mean(0)):
        assert noise.abs().max() < 5 / 4000**0.5


def test_random_signs_do_not_depend_on_the_chunks(make_audit, monkeypatch) -> None:
    monkeypatch.setattr(second_derivatives, "EXACT_UNITS", 0)
    monkeypatch.setattr(second_derivatives, "EXACT_PRODUCTS", 0)
    network, x, y = build("tokens", n=10)
    whole = flatness_of(make_audit, copy.deepcopy(network), x, y)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy(), bootstrap=50)
    object.__setattr__(audit.capture, "chunk", 3)
    chunked = measure(audit)
    for layer, block in whole.layers.items():
        close(chunked.layers[layer].rho_neurons, block.rho_neurons, EXACT)
        close(chunked.layers[layer].trace, block.trace, EXACT)


def test_intervals_hold_their_number_and_shrink_with_samples(make_audit) -> None:
    widths = []
    for n in (30, 480):
        network, x, y = build("relu", n=n)
        for block in flatness_of(make_audit, network, x, y).layers.values():
            for key in (
                "lambda_max",
                "trace",
                "kappa",
                "kappa_tau",
                "rho",
                "rho_sigma",
                "rho_columns",
                "relative_flatness",
            ):
                lower, upper = getattr(block, f"{key}_ci95")
                assert lower <= getattr(block, key) <= upper
        widths.append(block.trace_ci95[1] - block.trace_ci95[0])
    assert widths[1] < widths[0] / 2


def test_cards_cover_table_one_and_are_complete() -> None:
    ids = {card.id.removeprefix("flatness.") for card in Flatness().cards}
    assert ids >= {"kappa", "kappa_tau", "rho", "rho_sigma", "rho_neurons", "lambda_max", "trace", "relative_flatness"}
    for card in Flatness().cards:
        assert card.meaning and card.formula and card.source and card.variant and card.can_tell and card.cannot_tell
    assert all("follow the train loss" in c.contradictions for c in Flatness().cards if "norm" not in c.id)
