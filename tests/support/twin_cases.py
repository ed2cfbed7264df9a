"""Tiny problems for twins: three blobs, a few dozen samples, a network that learns them in a moment."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from audit.twins.stack import chain_of
from audit.twins.training import Architecture, Samples


def small_network(inputs: int = 4, outputs: int = 3, hidden: int = 8, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = {"fc1": nn.Linear(inputs, hidden), "tanh": nn.Tanh(), "fc2": nn.Linear(hidden, hidden), "relu": nn.ReLU()}
    return nn.Sequential(OrderedDict(layers, fc3=nn.Linear(hidden, outputs)))


def blobs(count: int = 60, seed: int = 0, classes: int = 3) -> tuple[Tensor, Tensor]:
    draw = np.random.default_rng(seed)
    y = np.arange(count) % classes
    centres = np.random.default_rng(99).normal(size=(classes, 4)) * 1.5
    x = centres[y] + draw.normal(size=(count, 4))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def small_architecture(outputs: int = 3) -> Architecture:
    network = small_network(outputs=outputs).eval().requires_grad_(False)
    return Architecture(network, chain_of(network, blobs()[0][:8]))


def small_samples(task: str = "classification", count: int = 60) -> Samples:
    x, y = blobs(count)
    if task == "regression":
        return Samples(x, (x[:, :1] - 0.5 * x[:, 1:2]).tanh(), task)
    return Samples(x, y if task == "classification" else (y > 0).long(), task)


def small_folder(folder: Path, count: int = 60) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed in (("train", 0), ("test", 1)):
        x, y = blobs(count, seed)
        np.savez(folder / f"{name}.npz", x=x.numpy(), y=y.numpy())
    return folder


def fitted_network(loss: float = 0.2) -> nn.Sequential:
    network, (x, y) = small_network(), blobs()
    optimizer = torch.optim.SGD(network.parameters(), 0.2)
    torch.manual_seed(0)
    for _ in range(3000):
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(network(x), y)
        if value < loss:
            break
        value.backward()
        optimizer.step()
    return network.eval()
