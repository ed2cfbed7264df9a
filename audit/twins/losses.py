"""The losses of training, for stacks of networks: values and gradients in the scores, in the network's precision."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

LossAndGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Scores f [K, b, C] and labels [K, b] (targets [K, b, C]) to the loss of each sample [K, b] and ∂l/∂f [K, b, C]."""


def cross_entropy(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """−ln p_y, and p − 1_y."""
    log_p = f.log_softmax(-1)
    value = -log_p.gather(-1, y[..., None])
    gradient = log_p.exp().scatter_add_(-1, y[..., None], -torch.ones_like(value))
    return value[..., 0], gradient


def binary_cross_entropy(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """−ln p(y) of one score: ln(1 + e^{−s f}) and −s σ(−s f), s = ±1."""
    sign = (2 * y - 1).to(f.dtype)[..., None]
    return F.softplus(-sign * f)[..., 0], -sign * torch.sigmoid(-sign * f)


def squared_error(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """½ ‖f − y‖² and f − y."""
    residual = f - y
    return residual.square().sum(-1) / 2, residual


LOSSES: dict[str, LossAndGradient] = {
    "classification": cross_entropy,
    "binary": binary_cross_entropy,
    "regression": squared_error,
}
