"""Networks that are known to be piecewise linear, and those that must be looked at."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from zoo import ZOO, build

from audit.network.second_derivatives import find_residuals, is_piecewise_linear


class Multiplied(nn.Module):
    """Its modules are all straight, what it does with them is not."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * self.b(x)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_only_networks_without_residual_curvature_are_known_to_be_straight(make_audit, name) -> None:
    network, x, y = build(name, n=9)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy(), task=ZOO[name].task)
    if is_piecewise_linear(audit.network):
        passed = audit.capture.run(audit.capture._ready(audit.train.x))
        gradient = audit.loss.gradient(passed.f.detach().double(), audit.train.y)
        assert not find_residuals(list(audit.layers), passed.f, gradient, passed.calls).by_layer


def test_what_is_known_and_what_is_not() -> None:
    chain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Sequential(nn.Dropout(), nn.Linear(4, 2)))
    assert is_piecewise_linear(chain.eval()) and is_piecewise_linear(fx.symbolic_trace(chain))
    assert not is_piecewise_linear(chain.train())
    for curved in (nn.Sequential(nn.Linear(3, 4), nn.Tanh()), Multiplied(), fx.symbolic_trace(Multiplied())):
        assert not is_piecewise_linear(curved.eval())
    assert not is_piecewise_linear(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval())
