"""Real networks whose outcomes, sample by sample, the calibration compares: 784-30-30-10 on the bundled MNIST images.

Recipes differ in their train data only; every seed draws its own weights, order of samples, wrong labels and subset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from places import SAMPLES
from torch import Tensor, nn

MNIST = SAMPLES / "mnist"
EPOCHS, BATCH, RATE = 30, 50, 0.1


@dataclass(frozen=True)
class Recipe:
    """What was done to the train split."""

    wrong_labels: float = 0.0  # share of labels moved to another class
    kept: float = 1.0  # share of the samples


CLEAN, NOISY, QUARTER = Recipe(), Recipe(wrong_labels=0.25), Recipe(kept=0.25)


def read(split: str) -> tuple[Tensor, Tensor]:
    with np.load(MNIST / f"{split}.npz") as arrays:
        x, y = arrays["x"], arrays["y"]
    return torch.from_numpy(x.reshape(len(x), -1)).float() / 255, torch.from_numpy(y).long()


def outcomes(recipe: Recipe, seed: int) -> dict[str, np.ndarray]:
    """Losses and mistakes [n] of one trained network on the whole clean train split and on test."""
    network = trained(recipe, seed)
    found = {}
    for split in ("train", "test"):
        x, y = read(split)
        with torch.no_grad():
            f = network(x).double()
        found[f"{split}_loss"] = F.cross_entropy(f, y, reduction="none").numpy()
        found[f"{split}_wrong"] = (f.argmax(1) != y).double().numpy()
    return found


def trained(recipe: Recipe, seed: int) -> nn.Module:
    """Plain SGD on one thread; the same seed gives the same network."""
    torch.manual_seed(seed)
    x, y = read("train")
    rows = torch.randperm(len(x))[: round(recipe.kept * len(x))]
    x, y = x[rows], y[rows]
    moved = torch.rand(len(y)) < recipe.wrong_labels
    y = torch.where(moved, (y + torch.randint(1, 10, y.shape)) % 10, y)
    network = nn.Sequential(nn.Linear(784, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
    return network
