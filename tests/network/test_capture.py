from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_audits import AuditMaker, as_model
from references import capture as reference
from tolerances import EXACT, ROUNDING
from torch import nn
from zoo import ZOO, build

from audit.network import find_layers
from audit.network.backward import one_by_one
from audit.network.capture import Capture
from audit.network.hooks import Operators
from audit.network.loss import LOSS_OF_TASK
from audit.network.record import Products

CURVED = {"tanh", "gelu-dropout", "layernorm", "residual-tanh", "tokens", "tokens-second-axis", "regression"}


def capture_of(name: str, chunk: int, n: int = 7) -> tuple[Capture, torch.Tensor, torch.Tensor]:
    network, x, y = build(name, n)
    layers = find_layers(as_model(network, tuple(x.shape[1:])), x[:4]).dense
    return Capture(network, layers, LOSS_OF_TASK[ZOO[name].task], chunk), x, y


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    scale = max(float(theirs.abs().max()), 1e-12)
    return float((ours - theirs).abs().max()) <= EXACT * scale


@pytest.mark.parametrize("name", ZOO)
def test_record_agrees_with_plain_autograd(name: str) -> None:
    capture, x, y = capture_of(name, chunk=3)
    for record in capture.full(x, y):
        i = record.start
        for layer in record.layers.values():
            where, sample = layer.layer.module, x[i : i + 1]
            raw_x, raw_z = reference.raw_answer(capture.network, where, sample)
            gradient, hessian = reference.loss_derivatives(capture.network, where, sample, y[i], ZOO[name].task)
            assert close(layer.x[0].flatten(), raw_x.flatten())
            assert close(layer.z[0].flatten(), raw_z.flatten())
            assert close(layer.J[0].flatten(1), reference.jacobian(capture.network, where, sample))
            assert close(layer.delta[0].flatten(), gradient)
            assert close(record.curvature(layer.layer.name)[0], hessian)
            V = torch.randn(len(record.f), *layer.z.shape[1:], dtype=torch.float64)
            S_V = record.curvature_times(layer.layer.name, V)[0].flatten()
            assert close(S_V, hessian @ V[0].flatten())
        ours = Products(record).input_jacobian
        assert ours is not None
        assert close(ours[0], reference.input_jacobian(capture.network, x[i : i + 1]))


@pytest.mark.parametrize("name", ZOO)
def test_curved_tails_are_told_from_piecewise_linear_ones(name: str) -> None:
    capture, x, y = capture_of(name, chunk=7)
    (record,) = capture.full(x, y)
    first = next(iter(record.layers.values()))
    assert first.curvature == "exact"
    assert (first.residual_times is not None) == (name in CURVED)


@pytest.mark.parametrize("name", ["relu", "tanh", "lenet", "tokens-second-axis", "regression"])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_results_do_not_depend_on_the_chunk_size(name: str, chunk: int) -> None:
    def gathered(size: int) -> dict[str, torch.Tensor]:
        capture, x, y = capture_of(name, size)
        records = list(capture.full(x, y))
        whole = {"loss": torch.cat([record.loss for record in records])}
        for layer in capture.layers:
            whole[layer.name] = torch.cat([record.curvature(layer.name) for record in records])
        return whole

    ours, theirs = gathered(chunk), gathered(3)
    assert all(close(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("name", ["relu", "tanh", "tokens"])
def test_a_fixed_batch_is_filled_up_and_the_filling_left_out(name: str) -> None:
    capture, x, y = capture_of(name, chunk=3)
    fixed = Capture(capture.network, capture.layers, capture.loss, chunk=3, fixed_batch=4)
    ours, theirs = list(fixed.full(x, y)), list(capture.full(x, y))
    assert [len(record.f) for record in ours] == [4, 3]
    assert close(torch.cat([record.loss for record in ours]), torch.cat([record.loss for record in theirs]))
    for layer in capture.layers:
        S = [torch.cat([record.curvature(layer.name) for record in records]) for records in (ours, theirs)]
        assert close(*S)


def test_layers_that_work_in_place_do_not_overwrite_what_was_captured() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)).double().requires_grad_(False)
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.arange(5) % 3
    layers = find_layers(as_model(network, (6,)), x).dense
    (record,) = Capture(network, layers, LOSS_OF_TASK["classification"], 5).full(x, y)
    assert torch.equal(record.layers["0"].z[:, 0], x @ network[0].weight.T + network[0].bias)
    assert close(record.layers["0"].J[0].flatten(1), reference.jacobian(network, "0", x[:1]))


def test_forward_records_hold_inputs_and_losses_but_no_jacobian() -> None:
    capture, x, y = capture_of("relu", chunk=3)
    full, forward = list(capture.full(x, y)), list(capture.forward(x, y))
    assert (
        max(len(record.loss) for record in full) < max(len(record.loss) for record in forward) <= capture.forward_size
    )
    assert close(*(torch.cat([record.loss for record in records]) for records in (forward, full)))
    for name in full[0].layers:
        assert close(*(torch.cat([record.layers[name].x for record in records]) for records in (forward, full)))
    for record in forward:
        assert Products(record).input_jacobian is None
        assert all(layer.J.shape[1] == 0 for layer in record.layers.values())


class Prototypes(nn.Module):
    """Scores from distances to prototypes: torch.cdist can be differentiated once, not twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 4), nn.Linear(5, 3)
        self.register_buffer("centres", torch.randn(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cdist(self.embed(x), self.centres))


def test_a_network_without_second_derivative_is_labelled_gauss_newton() -> None:
    torch.manual_seed(0)
    network = Prototypes().double().requires_grad_(False)
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.arange(5) % 3
    layers = find_layers(as_model(network, (6,)), x).dense
    (record,) = Capture(network, layers, LOSS_OF_TASK["classification"], 5).full(x, y)
    assert record.layers["embed"].curvature == "gauss-newton"


def test_single_precision_capture_reduces_in_double() -> None:
    capture, x, y = capture_of("relu", chunk=7)
    single = Capture(capture.network.float(), capture.layers, capture.loss, chunk=7)
    (record,) = single.full(x, y)
    assert record.layers["0"].J.dtype == torch.float32
    assert record.layers["0"].delta.dtype == record.loss.dtype == torch.float64


@pytest.mark.parametrize("name", ["relu", "tanh", "tokens", "regression"])
def test_backward_passes_one_by_one_or_side_by_side_give_the_same(name: str) -> None:
    capture, x, y = capture_of(name, chunk=7)
    one_by_one = Capture(capture.network, capture.layers, capture.loss, 7, side_by_side=False)
    (ours,), (theirs,) = one_by_one.full(x, y), capture.full(x, y)
    for layer in capture.layers:
        assert close(ours.layers[layer.name].J, theirs.layers[layer.name].J)


def test_without_the_input_a_record_is_the_same_but_for_it(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 3))
    x, y = np.random.default_rng(0).normal(size=(7, 1, 6, 6)), np.arange(7) % 3
    audit = make_audit(network.double(), x, y, x, y)
    shallow = replace(audit.capture, to_input=False, side_by_side=True)
    for deep, bare in zip(audit.train, shallow.full(audit.train.x, audit.train.y), strict=True):
        without = Products(bare)
        assert without.input_jacobian is None and without.input_map is None
        assert Products(deep).input_jacobian is not None
        for name, layer in deep.layers.items():
            assert torch.allclose(layer.J, bare.layers[name].J, rtol=ROUNDING, atol=1e-15)
            assert torch.equal(layer.x, bare.layers[name].x)


def test_a_backward_pass_does_no_work_for_the_other_scores() -> None:
    class Counting(Operators):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    f = x @ torch.randn(4, 200, dtype=torch.float64)
    with Counting():
        (found,) = one_by_one(f, [x], None)
    assert found.shape == (200, 3, 4)
    assert Counting.calls < 15 * 200
