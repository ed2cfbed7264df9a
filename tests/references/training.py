"""Training one network after another with PyTorch's own optimizers: what a stack must equal."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def one_by_one(
    network: nn.Module,
    starts: list[dict[str, Tensor]],
    batches: list[list[tuple[Tensor, Tensor]]],
    make: object,
    loss: object,
) -> list[dict[str, Tensor]]:
    """Each start taken through its own batches; the parameters after the last."""
    found = []
    for start, own in zip(starts, batches, strict=True):
        one = copy.deepcopy(network).requires_grad_(True)
        one.load_state_dict(start)
        optimizer = make(one.parameters())  # type: ignore[operator]
        for x, y in own:
            optimizer.zero_grad()
            loss(one(x), y).backward()  # type: ignore[operator]
            optimizer.step()
        found.append({name: value.detach().clone() for name, value in one.named_parameters()})
    return found


def half_squared_error(f: Tensor, y: Tensor) -> Tensor:
    return (f - y).square().sum(1).mean() / 2


def binary(f: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(f[:, 0], y.float())
