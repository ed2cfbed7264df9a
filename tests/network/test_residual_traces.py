"""What Gauss–Newton leaves out: unbiased against the whole Hessian, zero where the network is piecewise linear."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from audit.network.random_signs import Draw
from audit.network.residual_traces import residual_traces

SEEDS = 400


def hessian_trace(audit, name: str, only_scores: bool) -> float:
    """Tr of the mean loss's Hessian in one weight by plain autograd; `only_scores`: with ∂l/∂f held fixed."""
    weight = audit.network.get_parameter(name)

    def loss(value: Tensor) -> Tensor:
        f = torch.func.functional_call(audit.network, {name: value}, (audit.train.x,))
        if not only_scores:
            return audit.loss.value(f, audit.train.y).mean()
        return (f * audit.loss.gradient(f.detach(), audit.train.y)).sum() / len(f)

    H = torch.autograd.functional.hessian(loss, weight.detach().clone())
    return float(H.reshape(weight.numel(), weight.numel()).trace())


@pytest.fixture
def tanh_audit(make_audit):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)), rng.integers(0, 2, 12)
    return make_audit(network, x, y, x[:3], y[:3], bootstrap=10)


def found(audit, seed: int):
    batches = list(audit.capture.batches(audit.train.x, audit.train.y, 3))
    return residual_traces(audit.network, audit.layers, audit.loss, batches, Draw(len(audit.train), 2, seed))


def test_the_traces_are_unbiased(tanh_audit) -> None:
    values = {name: [] for name in ("0", "2")}
    for seed in range(SEEDS):
        traces = found(tanh_audit, seed).traces
        for name, kept in values.items():
            kept.append(float(traces[name].value))
    for name, kept in values.items():
        exact = hessian_trace(tanh_audit, f"{name}.weight", only_scores=True)
        error = np.std(kept, ddof=1) / SEEDS**0.5
        assert abs(np.mean(kept) - exact) < 4 * error


def test_the_last_layer_and_piecewise_linear_networks_leave_nothing_out(tanh_audit, make_audit) -> None:
    assert found(tanh_audit, 0).curved == {"0", "2"}
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 2
    assert found(make_audit(network, x, y, x[:2], y[:2], bootstrap=10), 0).curved == frozenset()
