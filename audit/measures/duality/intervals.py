"""Bootstrap over pairs: how sure the split is, with its directions held fixed.

A contribution is ⟨s w²⟩ − ⟨s w⟩·⟨w⟩ summed over directions (g = s ΔW). The first term is a mean over pairs. The second
is a product of two means, tiny beside it; around the sample means it is taken to first order, and what is left over,
δ⟨g⟩·δ⟨w⟩, is replaced by its expectation, contribution/K. So a draw costs a few numbers per pair, not a projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import LEVELS, interval, resampled_means
from audit.measures.duality.block import DualityIntervals
from audit.report.fields import Interval

Array = NDArray[np.float64]
FEW = 10  # pairs below which draws of them say little, and the expansion to first order may even miss the number itself


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

    def first_order(self) -> Array:
        """What each pair adds [K]: its mean over a draw, plus `offset`, is the draw's contribution."""
        return self.product - self.g_mean_w - self.w_mean_g

    @property
    def offset(self) -> float:
        """The rest of a draw's contribution, the same in every draw."""
        return float(self.g_mean_w.mean()) - self.contribution / len(self.product)


@dataclass(frozen=True)
class Evidence:
    """What the intervals of one layer rest on: its pairs, without any direction."""

    gap: Array  # [K]
    sharp: Part
    whole: Part


def bootstrap(evidence: Sequence[Evidence], count: int, seed: int) -> list[DualityIntervals]:
    """Intervals of every layer; none of fewer than `FEW` pairs.

    Layers with equally many pairs share their draws, and one matrix product.
    """
    found: dict[int, DualityIntervals] = {}
    for K in sorted({len(layer.gap) for layer in evidence}):
        mine = [place for place, layer in enumerate(evidence) if len(layer.gap) == K]
        columns = [(evidence[i].gap, evidence[i].sharp.first_order(), evidence[i].whole.first_order()) for i in mine]
        matrix = np.stack([column for layer in columns for column in layer], 1)  # [K, 3 · layers]
        means = resampled_means(matrix, count, seed)
        for position, place in enumerate(mine):
            found[place] = _intervals(evidence[place], means[:, 3 * position : 3 * position + 3])
    return [found[place] for place in range(len(evidence))]


def _intervals(layer: Evidence, means: Array) -> DualityIntervals:
    if len(layer.gap) < FEW:
        return DualityIntervals()
    gap, sharp, whole = means[:, 0], means[:, 1] + layer.sharp.offset, means[:, 2] + layer.whole.offset
    return DualityIntervals(
        gap=interval(gap),
        sharp_contribution=interval(sharp),
        flat_contribution=interval(whole - sharp),
        sharp_share=share_interval(sharp, whole),
        flat_share=share_interval(whole - sharp, whole),
    )


def share_interval(part: Array, whole: Array) -> Interval:
    """Of the share part/whole; None where the whole is not positive in 97.5 % of the draws."""
    if np.percentile(whole, LEVELS[0]) <= 0:
        return None
    positive = whole > 0
    return interval(part[positive] / whole[positive])
