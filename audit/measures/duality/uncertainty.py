"""How sure the split of the gap is: standard errors and bootstrap intervals over pairs, directions held fixed.

A standard error is taken to first order: the deviation of what each pair adds to a number, over √K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.blocks import DIRECTIONS, blocks
from audit.maths.intervals import standard_error
from audit.maths.resample import LEVELS, Bootstrap, interval
from audit.measures.duality.block import DualityIntervals
from audit.report.fields import Interval

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DirectionErrors:
    """By direction."""

    sigma_g: list[float]
    sigma_w: list[float]
    cumulative_w: list[float]
    c: list[float | None]
    contribution: list[float]


@dataclass(frozen=True)
class TotalErrors:
    """Of numbers over all directions."""

    mean_term: float
    target_term: float
    total_g: float
    total_w: float
    second_moment_w: float
    remainder: float
    remainder_sigma_g: float
    remainder_sigma_w: float


@dataclass(frozen=True)
class PairColumns:
    """What each pair adds [K], up to constants, over all directions and over the kept ones."""

    target: Array  # Δl where ΔW = 0
    square_w: Array  # ‖ΔW‖²
    variance_w: Array  # ‖ΔW‖² − 2 ΔW·⟨ΔW⟩
    variance_g: Array
    kept_variance_w: Array
    kept_variance_g: Array
    whole: Part
    kept: Part


def direction_errors(w: Tensor, g: Tensor, c: Sequence[float | None]) -> DirectionErrors:
    """Of projections w, g [K, N] with correlations c [N], some directions at a time."""
    correlation = torch.tensor([value or 0.0 for value in c], dtype=w.dtype, device=w.device)
    before, found = w.new_zeros(len(w), 1), []
    for some in blocks(max(1, w.shape[1]), 1, DIRECTIONS):  # an empty one where there is no direction
        w_part, g_part, c_part = w[:, some], g[:, some], correlation[some]
        w_part, g_part = w_part - w_part.mean(0), g_part - g_part.mean(0)
        sigma_w, sigma_g = (part.square().mean(0).sqrt() for part in (w_part, g_part))
        unit_w = w_part / torch.where(sigma_w > 0, sigma_w, 1.0)
        unit_g = g_part / torch.where(sigma_g > 0, sigma_g, 1.0)
        added_w = sigma_w / 2 * unit_w.square()  # σ² moves by the square, σ by half of it over σ
        added_c = unit_g * unit_w - c_part / 2 * (unit_g.square() + unit_w.square())
        sums = before + added_w.cumsum(1)
        columns = (sigma_g / 2 * unit_g.square(), added_w, sums, added_c, g_part * w_part)
        found.append([standard_error(added).tolist() for added in columns])
        before = sums[:, -1:]
    sigma_g_error, sigma_w_error, cumulative, c_error, contribution = (
        [error for part in column for error in part] for column in zip(*found, strict=True)
    )
    return DirectionErrors(
        sigma_g=sigma_g_error,
        sigma_w=sigma_w_error,
        cumulative_w=cumulative,
        c=[None if value is None else error for value, error in zip(c, c_error, strict=True)],
        contribution=contribution,
    )


def total_errors(pairs: PairColumns, sigma_g: float, sigma_w: float) -> TotalErrors:
    """`sigma_g` and `sigma_w` are those of the remainder."""
    whole, kept = pairs.whole, pairs.kept
    return TotalErrors(
        mean_term=_error(whole.g_mean_w + whole.w_mean_g),
        target_term=_error(pairs.target),
        total_g=_error(pairs.variance_g),
        total_w=_error(pairs.variance_w),
        second_moment_w=_error(pairs.square_w),
        remainder=_error(whole.first_order() - kept.first_order()),
        remainder_sigma_g=_of_root(pairs.variance_g - pairs.kept_variance_g, sigma_g),
        remainder_sigma_w=_of_root(pairs.variance_w - pairs.kept_variance_w, sigma_w),
    )


def share_error(part: Part, whole: Part, total: float) -> float | None:
    """Of part/whole; None where the whole is not positive."""
    if total <= 0:
        return None
    return _error((part.first_order() - part.contribution / total * whole.first_order()) / total)


def _error(added: Array) -> float:
    return float(standard_error(added))


def _of_root(added: Array, sigma: float) -> float:
    """Of σ, where σ² is the mean of what is added."""
    return _error(added) / (2 * sigma) if sigma > 0 else 0.0


# Bootstrap over pairs: how sure the split is, with its directions held fixed.
# A contribution is ⟨s w²⟩ − ⟨s w⟩·⟨w⟩ summed over directions (g = s ΔW). The first term is a mean over pairs. The
# second is a product of two means, tiny beside it; around the sample means it is taken to first order, and what is
# left over, δ⟨g⟩·δ⟨w⟩, is replaced by its expectation, contribution/K. So a draw costs a few numbers per pair.


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


def split_intervals(evidence: Sequence[Evidence], bootstrap: Bootstrap) -> list[DualityIntervals]:
    """Intervals of every layer; none of fewer than `FEW` pairs.

    Layers with equally many pairs share their draws, and one matrix product.
    """
    found: dict[int, DualityIntervals] = {}
    for K in sorted({len(layer.gap) for layer in evidence}):
        mine = [place for place, layer in enumerate(evidence) if len(layer.gap) == K]
        columns = [(evidence[i].gap, evidence[i].sharp.first_order(), evidence[i].whole.first_order()) for i in mine]
        matrix = np.stack([column for layer in columns for column in layer], 1)  # [K, 3 · layers]
        means = bootstrap.means(matrix)
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
