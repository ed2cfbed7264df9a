"""Networks that one forward pass shows to be linear in each parameter, against second derivatives."""

from __future__ import annotations

import pytest
import torch
from made_audits import as_model
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from zoo import ZOO, build

from audit.measures.sensitivity.sharpness import is_piecewise_linear_in
from audit.model.base import as_fed
from audit.network.residual_traces import is_multilinear

LINEAR = {"relu", "batchnorm", "bias-free", "linear", "lenet", "conv1x1", "binary", "one-weight", "residual"}


@pytest.mark.parametrize("name", sorted(ZOO))
def test_what_is_shown_agrees_with_every_second_derivative(name: str) -> None:
    network, x, _ = build(name, n=4)
    network = as_model(network, tuple(x.shape[1:])).network.double()
    x = as_fed(network, x)
    shown = is_multilinear(network, x)
    assert shown == (name in LINEAR)
    with sdpa_kernel(SDPBackend.MATH):
        straight = all(is_piecewise_linear_in(network, path, x) for path, _ in network.named_parameters())
    assert straight or not shown


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)


class Multiplied(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.a(x) * self.b(x))


class Repeated(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.a(torch.relu(self.a(x)))))


class Overwritten(Branches):
    """A square that hides behind an operator that writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        view = y.view(-1)
        view.mul_(self.a(x).flatten())
        return self.head(y)


class Divided(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.a(x)) / (1 + self.b.weight.sum())


class Skipped(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + torch.relu_(self.a(x).mul_(2)) + torch.clamp(self.b(x), -1, 1))


class TwoPlaces(Branches):
    """One layer on two parts of the input: a sum, so still linear in its weights."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.a(x)) + torch.relu(self.a(-x)))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [*((kind, False) for kind in (Multiplied, Repeated, Overwritten, Divided)), (Skipped, True), (TwoPlaces, True)],
)
def test_products_of_what_depends_on_the_same_are_curved(kind: type[nn.Module], expected: bool) -> None:
    torch.manual_seed(0)
    assert is_multilinear(kind().eval(), torch.randn(2, 3)) is expected


def test_statistics_of_the_batch_are_curved() -> None:
    chain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    assert is_multilinear(chain.eval(), x) and not is_multilinear(chain.train(), x)
