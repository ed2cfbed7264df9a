"""Deviations and covariances of all pairs along all directions, in one sweep, a few directions at a time.

The table of projections [K, N] may be the largest thing in an audit: nothing here is as large as it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DIRECTIONS = 64  # directions at a time: few enough for a processor's cache


@dataclass(frozen=True)
class Moments:
    """Of projections w and g = s w, around their means."""

    sigma_w: Tensor  # [N]
    sigma_g: Tensor  # [N]
    contribution: Tensor  # [N]  cov(g_n, w_n)
    square_w: Tensor  # [K]  Σ_n (w_n − ⟨w_n⟩)²
    square_g: Tensor  # [K]

    def in_order(self, order: Tensor) -> Moments:
        """The directions in another order."""
        return Moments(self.sigma_w[order], self.sigma_g[order], self.contribution[order], self.square_w, self.square_g)


def moments(w: Tensor, s: Tensor) -> Moments:
    """Of w [K, N], with s [K]."""
    found, square_w, square_g = [], torch.zeros_like(s), torch.zeros_like(s)
    for part in torch.split(w, DIRECTIONS, 1):
        g_part = s[:, None] * part
        w_part, g_part = part - part.mean(0), g_part.sub_(g_part.mean(0))
        contribution = (g_part * w_part).mean(0)
        w_part, g_part = w_part.square_(), g_part.square_()
        found.append((w_part.mean(0).sqrt(), g_part.mean(0).sqrt(), contribution))
        square_w += w_part.sum(1)
        square_g += g_part.sum(1)
    sigma_w, sigma_g, contribution = (torch.cat(column) for column in zip(*found, strict=True))
    return Moments(sigma_w, sigma_g, contribution, square_w, square_g)
