"""Networks and data that the activity–weight decomposition is tested on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from references.duality import Reference, decompose
from torch import Tensor, nn

from audit.measures.contract import Audit, Measurement
from audit.measures.duality.measure import Duality
from audit.network.record import Products

AuditMaker = Callable[..., Audit]


class Tokenwise(nn.Module):
    """A dense layer on each of three tokens, nothing beside it."""

    def __init__(self, into: int = 5) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(into, 4), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)).flatten(1))


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out, bias=bias), act()]
    return nn.Sequential(*layers[:-1])


def grown(network: nn.Module, seed: int = 0, scale: float = 1.0) -> nn.Module:
    """In float64, with weights that make confident and varied answers."""
    generator = torch.Generator().manual_seed(seed)
    network = network.double()
    with torch.no_grad():
        for parameter in network.parameters():
            width = parameter.shape[1:].numel() if parameter.dim() > 1 else 8
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / width**0.5)
    return network.eval()


def normed() -> nn.Sequential:
    network = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    generator = torch.Generator().manual_seed(0)
    network[1].running_mean.uniform_(-1, 1, generator=generator)  # type: ignore[union-attr, operator]
    network[1].running_var.uniform_(0.5, 2, generator=generator)  # type: ignore[union-attr, operator]
    return network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, int]] = {
    "relu": (lambda: mlp(6, 5, 4, 3), (6,), "classification", 3),
    "tanh": (lambda: mlp(6, 5, 3, act=nn.Tanh), (6,), "classification", 3),
    "gelu": (lambda: mlp(6, 5, 3, act=nn.GELU), (6,), "classification", 3),
    "bias-free": (lambda: mlp(6, 5, 3, bias=False), (6,), "classification", 3),
    "linear": (lambda: mlp(6, 3), (6,), "classification", 3),
    "batchnorm": (normed, (6,), "classification", 3),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)),
        (1, 4, 4),
        "classification",
        3,
    ),
    "tokens": (Tokenwise, (3, 5), "classification", 3),
    "binary": (lambda: mlp(6, 4, 1), (6,), "binary", 2),
    "regression": (lambda: mlp(6, 4, 2), (6,), "regression", 2),
    "one weight": (lambda: mlp(1, 1), (1,), "binary", 2),
}


def samples(shape: tuple[int, ...], task: str, outputs: int, seed: int = 0, n: int = 40, k: int = 17):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    x, x_test = rng.normal(size=(n, *shape)), rng.normal(size=(k, *shape))
    if task == "regression":
        return x, rng.normal(size=(n, outputs)), x_test, rng.normal(size=(k, outputs))
    return x, rng.integers(outputs, size=n), x_test, rng.integers(outputs, size=k)


def run(audit: Audit) -> Measurement:
    fold = Duality().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    return fold.finish()


def reference(network: nn.Module, name: str, data, task: str, space: str = "input") -> Reference:  # type: ignore[no-untyped-def]
    return decompose(network, network.get_submodule(name), *(torch.from_numpy(part) for part in data), task, space)
