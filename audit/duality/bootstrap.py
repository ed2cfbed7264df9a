"""Bootstrap over pairs: how sure the split is, with its directions held fixed.

A contribution is ⟨s w²⟩ − ⟨s w⟩·⟨w⟩ summed over directions (g = s ΔW). The first term is a mean over pairs. The second
is a product of two means, tiny beside it; around the sample means it is taken to first order, and what is left over,
δ⟨g⟩·δ⟨w⟩, is replaced by its expectation, contribution/K. So a draw costs a few numbers per pair, not a projection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.report import Interval

Array = NDArray[np.float64]
LEVELS = (2.5, 97.5)
BLOCK = 1 << 22  # counts drawn at once


@dataclass(frozen=True)
class Part:
    """Some of the directions, in numbers per pair [K]."""

    product: Array  # Σ_n g_n w_n
    g_mean_w: Array  # Σ_n ⟨g_n⟩ w_n
    w_mean_g: Array  # Σ_n ⟨w_n⟩ g_n

    @property
    def contribution(self) -> float:
        """Σ_n cov(g_n, w_n)."""
        return float(self.product.mean() - self.g_mean_w.mean())

    def drawn(self, weights: Array) -> Array:
        """The contribution in each draw; weights [draws, K] with rows of mean 1."""
        K = len(self.product)
        mean_term = self.g_mean_w.mean()
        first_order = weights @ (self.product - self.g_mean_w - self.w_mean_g) / K + mean_term
        return np.asarray(first_order - self.contribution / K)


def draws(K: int, count: int, seed: int) -> Iterator[Array]:
    """How often each of K pairs is drawn, in blocks of [draws, K]; each row adds up to K."""
    rng = np.random.default_rng(seed)
    rows = max(1, BLOCK // K)
    for start in range(0, count, rows):
        size = min(rows, count - start)
        picks = rng.integers(K, size=(size, K)) + K * np.arange(size)[:, None]
        yield np.bincount(picks.ravel(), minlength=size * K).reshape(size, K).astype(np.float64)


def interval(values: Array) -> Interval:
    """The central 95 %."""
    lower, upper = np.percentile(values, LEVELS)
    return float(lower), float(upper)


def share_interval(part: Array, whole: Array) -> Interval:
    """Of the share part/whole; None where the whole is not positive in 97.5 % of the draws."""
    if np.percentile(whole, LEVELS[0]) <= 0:
        return None
    positive = whole > 0
    return interval(part[positive] / whole[positive])
