"""The regularizers in their slowest form: derivatives by the whole Hessian, gradients part by part."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call


def fisher_gradient(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    alpha: float,
    beta: float,
    parts: int,
) -> list[Tensor]:
    """∇[L(B) + β R], from the gradients of L at w and at each w − α g_i: (1 + β) ∇L(B) − β/M Σ ∇L(B_i, w − α g_i)."""
    total = [(1 + beta) * g for g in _gradient(network, loss, x, y)]
    for part, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
        moved, own = copy.deepcopy(network), _gradient(network, loss, part, labels)
        with torch.no_grad():
            for value, g in zip(moved.parameters(), own, strict=True):
                value -= alpha * g
        for place, g in enumerate(_gradient(moved, loss, part, labels)):
            total[place] = total[place] - beta / parts * g
    return total


def _gradient(network: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    network.zero_grad()
    loss(network(x), y).backward()
    return [value.grad.clone() for value in network.parameters() if value.grad is not None]


def kappa_tau(network: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, layer: str) -> Tensor:
    """‖W‖² times the trace of the whole Hessian of the mean loss in the layer's weights."""
    W = network.get_submodule(layer).get_parameter("weight").detach()

    def mean_loss(flat: Tensor) -> Tensor:
        return loss(functional_call(network, {f"{layer}.weight": flat.reshape(W.shape)}, (x,)), y)

    H = torch.autograd.functional.hessian(mean_loss, W.flatten())
    return W.square().sum() * H.diagonal().sum()
