"""Small changes the slow way: one sample at a time, every change made by itself, plain loops."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]  # of scores [C] and a label
Rows = list[Tensor]  # scores [C] of each sample


def scores(network: nn.Module, x: Tensor) -> Rows:
    with torch.no_grad():
        return [network(sample[None])[0] for sample in x]


def loss_rise(before: Rows, after: list[Rows], y: Tensor, loss: Loss) -> float:
    """Mean over draws and samples."""
    rises = [
        float(loss(new, label) - loss(old, label))
        for draw in after
        for old, new, label in zip(before, draw, y, strict=True)
    ]
    return math.fsum(rises) / len(rises)


def score_change(before: Rows, after: list[Rows]) -> float:
    sizes = [float((new - old).norm()) for draw in after for old, new in zip(before, draw, strict=True)]
    return math.fsum(sizes) / len(sizes)


def spread(x: Tensor) -> float:
    """Root mean square over the numbers of their standard deviations."""
    numbers = x.flatten(1).T
    return math.sqrt(math.fsum(float(((row - row.mean()) ** 2).mean()) for row in numbers) / len(numbers))


def noisy(network: nn.Module, x: Tensor, spread: float, size: float, seeds: list[list[int]]) -> list[Rows]:
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        moved = [sample + size * spread * torch.from_numpy(rng.standard_normal(sample.shape)) for sample in x]
        found.append(scores(network, torch.stack(moved)))
    return found


def worst(network: nn.Module, x: Tensor, y: Tensor, spread: float, size: float, loss: Loss) -> Rows:
    """Along the gradient, as long as all numbers moved by `size` spreads."""
    found = []
    for sample, label in zip(x, y, strict=True):
        leaf = sample.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(network(leaf[None])[0], label), leaf)
        length = size * spread * math.sqrt(sample.numel())
        found.append(scores(network, (sample + length * gradient / gradient.norm())[None])[0])
    return found


def in_eight_bits(network: nn.Module) -> nn.Module:
    changed = copy.deepcopy(network)
    for weight in changed.parameters():
        if weight.dim() < 2:
            continue
        step = max(abs(float(value)) for value in weight.flatten()) / 127
        flat = [step * round(float(value) / step) for value in weight.flatten()]
        weight.data = torch.tensor(flat, dtype=weight.dtype).reshape(weight.shape)
    return changed


def moved(network: nn.Module, name: str, change: Tensor) -> nn.Module:
    changed = copy.deepcopy(network)
    changed.get_parameter(name).data += change
    return changed
