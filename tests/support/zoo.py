"""Small networks of every kind the audit meets, with random weights and the shape of one sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A skip around the middle layer."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(6, 7), nn.Linear(7, 7), nn.Linear(7, 3)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        h = self.activation(self.first(x))
        return self.head(h + self.activation(self.inner(h)))


class Tied(nn.Module):
    """One dense layer used twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.shared(torch.relu(self.shared(x)))))


class Tokens(nn.Module):
    """Dense layers over tokens, an attention block, and a mean over tokens. `first`: samples lie on axis 0 inside."""

    def __init__(self, first: bool = True) -> None:
        super().__init__()
        self.first = first
        self.embed, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=first, activation="gelu")

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) if self.first else self.embed(x.transpose(0, 1))
        return self.head(self.block(h).mean(1 if self.first else 0))


def lenet(channels: int = 1, size: int = 12, outputs: int = 3) -> nn.Module:
    """Two convolutions with pooling, then two dense layers."""
    side = ((size - 2) // 2 - 2) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 3, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * side * side, 8), nn.ReLU(), nn.Linear(8, outputs)),
    )


@dataclass(frozen=True)
class Case:
    """How to build a network and what to feed it."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    task: str = "classification"
    outputs: int = 3


def _mlp(activation: type[nn.Module], bias: bool = True, outputs: int = 3) -> nn.Module:
    layers = [nn.Linear(6, 7, bias), activation(), nn.Linear(7, 5, bias), activation(), nn.Linear(5, outputs, bias)]
    return nn.Sequential(*layers)


def _batchnorm() -> nn.Module:
    network = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
    with torch.no_grad():
        for values in network[1].buffers():
            if values.is_floating_point():
                values.uniform_(0.5, 1.5)
    return network


ZOO: dict[str, Case] = {
    "relu": Case(lambda: _mlp(nn.ReLU), (6,)),
    "tanh": Case(lambda: _mlp(nn.Tanh), (6,)),
    "gelu-dropout": Case(lambda: nn.Sequential(nn.Linear(6, 7), nn.GELU(), nn.Dropout(0.5), nn.Linear(7, 3)), (6,)),
    "batchnorm": Case(_batchnorm, (6,)),
    "layernorm": Case(lambda: nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 3)), (6,)),
    "residual": Case(Residual, (6,)),
    "residual-tanh": Case(lambda: Residual(torch.tanh), (6,)),
    "bias-free": Case(lambda: _mlp(nn.ReLU, bias=False), (6,)),
    "linear": Case(lambda: nn.Linear(6, 3), (6,)),
    "lenet": Case(lenet, (1, 12, 12)),
    "conv1x1": Case(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(4, 6, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        (1, 7, 7),
    ),
    "tokens": Case(Tokens, (5, 4)),
    "tokens-second-axis": Case(lambda: Tokens(first=False), (5, 4)),
    "binary": Case(lambda: _mlp(nn.ReLU, outputs=1), (6,), "binary", 1),
    "regression": Case(lambda: _mlp(nn.Tanh, outputs=2), (6,), "regression", 2),
    "one-weight": Case(lambda: nn.Linear(1, 1), (1,), "regression", 1),
}


def build(name: str, n: int = 7, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """The network in float64 and eval mode, inputs and labels."""
    case = ZOO[name]
    torch.manual_seed(seed)
    network = case.build().double().eval().requires_grad_(False)
    x = torch.randn(n, *case.shape, dtype=torch.float64)
    if case.task == "regression":
        return network, x, torch.randn(n, case.outputs, dtype=torch.float64)
    return network, x, torch.arange(n) % max(2, case.outputs)
