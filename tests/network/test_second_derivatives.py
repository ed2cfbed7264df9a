"""Networks that are known to be piecewise linear, and those that must be looked at."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from zoo import ZOO, build

from audit.model.base import as_fed
from audit.network.second_derivatives import find_residuals, is_piecewise_linear

KNOWN = {"relu", "batchnorm", "bias-free", "linear", "lenet", "conv1x1", "binary", "one-weight"}
UNKNOWN = {"residual"}  # piecewise linear, but a class of its own may do anything with its modules


class Multiplied(nn.Module):
    """Its modules are all piecewise linear, what it does with them is not."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * self.b(x)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_only_networks_without_residual_curvature_are_known_to_be_piecewise_linear(make_audit, name) -> None:
    network, x, y = build(name, n=9)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy(), task=ZOO[name].task)
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
        forward = audit.capture.run(as_fed(audit.network, audit.train.x))
        gradient = audit.loss.gradient(forward.f.detach().double(), audit.train.y)
        residuals = find_residuals(list(audit.layers), forward.f, gradient, forward.calls)
    assert is_piecewise_linear(audit.network) == (name in KNOWN)
    assert bool(residuals.by_layer) == (name not in KNOWN and name not in UNKNOWN)


def test_what_is_known_and_what_is_not() -> None:
    chain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Sequential(nn.Dropout(), nn.Linear(4, 2)))
    assert is_piecewise_linear(chain.eval()) and is_piecewise_linear(fx.symbolic_trace(chain))
    assert not is_piecewise_linear(chain.train())
    for curved in (nn.Sequential(nn.Linear(3, 4), nn.Tanh()), Multiplied(), fx.symbolic_trace(Multiplied())):
        assert not is_piecewise_linear(curved.eval())
    assert not is_piecewise_linear(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval())
