"""The networks and the data that everything is timed on: real MNIST images, networks trained briefly.

Untrained networks have spectra that no user will ever see (an iteration converges faster or slower on them), so each
network is trained for a few epochs, seeded. All are piecewise linear: their Hessian in one layer's weights is the
Gauss–Newton matrix, which is what some of the peers compute.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from audit.data.dataset import Data, Split
from audit.measures.contract import Audit
from audit.model.base import InputSpec, Model
from audit.run.setup import set_up_audit
from audit.settings import Settings

MNIST = Path(__file__).parent.parent / "samples" / "mnist"
SEED = 0
BATCH = 50


@dataclass(frozen=True)
class Case:
    """A trained network with its samples, all in the precision that is timed."""

    name: str
    network: nn.Module
    x: Tensor  # [n, ...]
    y: Tensor  # [n]
    x_test: Tensor
    y_test: Tensor
    settings: Settings

    @property
    def classes(self) -> int:
        """How many scores the network gives."""
        return int(self.network(self.x[:1]).shape[1])

    def cut(self, n: int) -> Case:
        """The same with the first n train samples only."""
        return replace(self, x=self.x[:n], y=self.y[:n])

    def fresh(self) -> nn.Module:
        """A copy of the network that a peer may change; its parameters ask for gradients."""
        return copy.deepcopy(self.network).requires_grad_(True)

    def audit(self) -> Audit:
        """The table that gen-audit's measures work at."""
        model = Model(copy.deepcopy(self.network), Path(self.name), "memory", "", InputSpec("x", self.x.shape[1:]), "y")
        splits = [Split(x.numpy(), y.numpy(), len(x)) for x, y in ((self.x, self.y), (self.x_test, self.y_test))]
        data = Data(*splits, path=Path("mnist"), layout="npz", sha256="", classes=None)
        return set_up_audit(model, data, "classification", self.settings)


@dataclass(frozen=True)
class Recipe:
    """How a case is made."""

    network: Callable[[], nn.Module]
    samples: int
    epochs: int
    shape: tuple[int, ...]
    hundred: bool = False  # a hundred labels in place of ten


def perceptron(*widths: int) -> nn.Module:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for into, out in pairwise(widths):
        layers += [nn.Linear(into, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet() -> nn.Module:
    """LeNet-5 with ReLU and max-pooling."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


RECIPES = {
    "784-30-30-10": Recipe(lambda: perceptron(784, 30, 30, 10), 4000, 20, (784,)),
    "784-512-512-10": Recipe(lambda: perceptron(784, 512, 512, 10), 4000, 4, (784,)),
    "784-512-512-100": Recipe(lambda: perceptron(784, 512, 512, 100), 1000, 12, (784,), hundred=True),
    "LeNet-5": Recipe(lenet, 2000, 6, (1, 28, 28)),
}


def make_case(name: str, settings: Settings, samples: int | None = None, weights: Path | None = None) -> Case:
    """The case `name`: on `samples` train images, in the precision of `settings`.

    More samples than there are images are the same images again. The network is trained, or read from `weights`.
    """
    recipe = RECIPES[name]
    (x, y), (x_test, y_test) = (_read(split, recipe) for split in ("train", "test"))
    network = recipe.network()
    if weights is None:
        rows = _spread(len(x), recipe.samples)
        network = trained(recipe, x[rows], y[rows])
    else:
        network.load_state_dict(torch.load(weights))
    dtype = torch.float32 if settings.precision == "float32" else torch.float64
    network = network.to(dtype).eval().requires_grad_(False)
    rows = _spread(len(x), samples or recipe.samples)
    return Case(name, network, x[rows].to(dtype), y[rows], x_test.to(dtype), y_test, settings)


def trained(recipe: Recipe, x: Tensor, y: Tensor) -> nn.Module:
    """The network after a few epochs of Adam."""
    torch.manual_seed(SEED)
    network, loss_of = recipe.network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(recipe.epochs):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss_of(network(x[batch]), y[batch]).backward()
            optimizer.step()
    return network


def _spread(total: int, n: int) -> Tensor:
    """Positions of n samples, evenly spread over the images; beyond `total`, all of them again and again."""
    return torch.arange(n) % total if n > total else torch.linspace(0, total - 1, n).long()


def _read(split: str, recipe: Recipe) -> tuple[Tensor, Tensor]:
    with np.load(MNIST / f"{split}.npz") as file:
        images, y = file["x"], file["y"]
    x = torch.from_numpy(images.reshape(len(images), *recipe.shape)).float() / 255
    return x, torch.from_numpy(by_ink(images, y) if recipe.hundred else y)


def by_ink(images: np.ndarray, y: np.ndarray, parts: int = 10) -> np.ndarray:
    """Labels parts · digit + part, by how much ink the image has among those of its digit in the split."""
    ink, labels = images.reshape(len(images), -1).sum(1, dtype=np.int64), np.empty(len(y), np.int64)
    for digit in range(10):
        own = np.flatnonzero(y == digit)
        rank = np.argsort(np.argsort(ink[own], kind="stable"), kind="stable")
        labels[own] = parts * digit + parts * rank // len(own)
    return labels
