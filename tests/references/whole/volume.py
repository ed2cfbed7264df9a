"""How far one Jacobian stretches: its largest singular value, and the volume it makes of a unit ball."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def norm2(K: Tensor) -> float:
    return float(torch.linalg.matrix_norm(K, 2))


def log_volume(K: Tensor) -> float:
    """½ ln det(K Kᵀ); −∞ where the rank is below the number of rows."""
    s = torch.linalg.svdvals(K)
    if K.shape[1] < K.shape[0] or s[-1] <= max(K.shape) * 2.3e-16 * s[0]:
        return -math.inf
    return float(s.log().sum())
