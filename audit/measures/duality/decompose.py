"""The gap of one layer's pairs, direction by direction (Feng & Tu, Eqs. 9–11).

⟨Δl⟩ = Σ_n cov(g_n, w_n) + Σ_n ⟨g_n⟩⟨w_n⟩ holds for every orthonormal basis: it is an identity, not a prediction. Pairs
that differ in nothing but their targets, as in a regression, have ΔW = 0 and are a term of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from audit.maths.intervals import standard_error
from audit.measures.duality.basis import UNVARYING, Basis, Projections, resolve_eigenspaces
from audit.measures.duality.block import FixedSplit, FlatPart, Remainder, SharpPart
from audit.measures.duality.layer_pairs import Duals, LayerPairs
from audit.measures.duality.uncertainty import (
    Array,
    DirectionErrors,
    Evidence,
    PairColumns,
    Part,
    TotalErrors,
    direction_errors,
    share_error,
    total_errors,
)


@dataclass(frozen=True)
class Decomposition:
    """Everything that the report says about the directions of a layer."""

    projections: Projections
    sigma_w: Array
    c: list[float | None]
    contribution: Array
    remainder: Remainder
    border: Border
    sharp: SharpPart
    flat: FlatPart
    fixed: FixedSplit | None
    share_skipped: str | None
    evidence: Evidence
    direction_errors: DirectionErrors
    total_errors: TotalErrors


def decompose(duals: Duals, numbers: LayerPairs, basis: Basis, leading: int, classes: int | None) -> Decomposition:
    """Splits the gap along `basis`, sharp directions first."""
    alive = numbers.alive
    s = numbers.s[alive]
    found = resolve_eigenspaces(basis, duals.along(basis.vectors)[alive], s, leading)
    w, contribution, sigma_w = found.w, found.moments.contribution, found.moments.sigma_w
    pairs = _pair_columns(duals, numbers, found)
    c = _correlations(numbers, found.sigma_g, sigma_w, contribution)
    remainder = _remainder(numbers, basis, found, sigma_w, contribution)
    errors = total_errors(pairs, remainder.sigma_g, remainder.sigma_w)
    border = sharp_border(found.sigma_g.tolist(), numbers.total_g)
    total = float(contribution.sum()) + remainder.contribution
    part, share = _part_of(contribution, border.count, total)
    return Decomposition(
        projections=found,
        sigma_w=sigma_w.cpu().numpy(),
        c=c,
        contribution=contribution.cpu().numpy(),
        remainder=remainder if basis.complete else _with_errors(remainder, errors),
        border=border,
        sharp=SharpPart(
            count=border.count,
            contribution=part,
            share=share,
            elbow=border.elbow,
            ratio=border.ratio,
            variance_share=border.variance_share,
            note=border.note,
        ),
        flat=FlatPart(contribution=total - part, share=None if share is None else 1 - share),
        fixed=_fixed(found, s, classes, total, basis.complete, pairs.whole),
        share_skipped=None if total > 0 else f"the directions' sum is not positive ({total:.3g}): it has no shares",
        evidence=Evidence(numbers.gap[alive].cpu().numpy(), _sharp_part(w, s, border.count), pairs.whole),
        direction_errors=direction_errors(w, s[:, None] * w, c),
        total_errors=errors,
    )


def _part_of(contribution: Tensor, count: int, total: float) -> tuple[float, float | None]:
    """What the first `count` directions contribute, and their share."""
    part = float(contribution[:count].sum())
    return part, part / total if total > 0 else None


def _fixed(
    found: Projections, s: Tensor, classes: int | None, total: float, complete: bool, whole: Part
) -> FixedSplit | None:
    """The split at the number of classes; None where not so many directions are kept."""
    contribution = found.moments.contribution
    if classes is None or (classes > len(contribution) and not complete):
        return None
    count = min(classes, len(contribution))
    part, share = _part_of(contribution, count, total)
    pairs = _sharp_part(found.w, s, count)
    return FixedSplit(
        count=count,
        contribution=part,
        contribution_std=float(standard_error(pairs.first_order())),
        share=share,
        share_std=share_error(pairs, whole, total),
    )


def _remainder(
    numbers: LayerPairs, basis: Basis, found: Projections, sigma_w: Tensor, contribution: Tensor
) -> Remainder:
    """What the kept directions leave: by subtraction from totals that need no directions."""
    if basis.complete:
        nothing = dict.fromkeys(
            ("contribution", "sigma_g", "sigma_w", "contribution_std", "sigma_g_std", "sigma_w_std"), 0.0
        )
        return Remainder(directions=0, **nothing)
    return Remainder(
        directions=numbers.mean_w.numel() - len(contribution),
        contribution=numbers.mean_gap - numbers.target_term - numbers.mean_term - float(contribution.sum()),
        sigma_g=max(0.0, numbers.total_g - float(found.sigma_g.square().sum())) ** 0.5,
        sigma_w=max(0.0, numbers.total_w - float(sigma_w.square().sum())) ** 0.5,
    )


def _with_errors(remainder: Remainder, errors: TotalErrors) -> Remainder:
    return replace(
        remainder,
        contribution_std=errors.remainder,
        sigma_g_std=errors.remainder_sigma_g,
        sigma_w_std=errors.remainder_sigma_w,
    )


def _correlations(numbers: LayerPairs, sigma_g: Tensor, sigma_w: Tensor, contribution: Tensor) -> list[float | None]:
    """c_n = cov/(σ_g σ_w); None where one of them does not vary beyond rounding."""
    varies = (sigma_g > UNVARYING * numbers.total_g**0.5) & (sigma_w > UNVARYING * numbers.total_w**0.5)
    c = (contribution / torch.where(varies, sigma_g * sigma_w, 1.0)).clamp(-1, 1)
    return [value if kept else None for value, kept in zip(c.tolist(), varies.tolist(), strict=True)]


def _sharp_part(w: Tensor, s: Tensor, count: int) -> Part:
    """The first directions, with g = s w never formed."""
    w = w[:, :count]
    return _part(s * torch.einsum("kn,kn->k", w, w), w @ (s @ w) / len(w), s * (w @ w.mean(0)))


def _pair_columns(duals: Duals, numbers: LayerPairs, found: Projections) -> PairColumns:
    """All directions, kept or not, by projections on the means themselves; and the kept ones."""
    alive = numbers.alive
    on_mean_g, on_mean_w = duals.on(numbers.mean_g, numbers.mean_w)[alive].unbind(1)
    s, squared, gap = numbers.s[alive], numbers.squared_norm[alive], numbers.gap[alive]
    return PairColumns(
        target=_array(torch.where(squared > 0, 0.0, gap)),
        square_w=_array(squared),
        variance_w=_array(squared - 2 * on_mean_w),
        variance_g=_array(s * gap - 2 * s * on_mean_g),
        kept_variance_w=_array(found.moments.square_w),
        kept_variance_g=_array(found.moments.square_g),
        whole=_part(s * squared, on_mean_g, s * on_mean_w),
        kept=_sharp_part(found.w, s, found.w.shape[1]),
    )


def _part(*columns: Tensor) -> Part:
    return Part(*map(_array, columns))


def _array(column: Tensor) -> Array:
    array: Array = column.cpu().numpy()
    return array


# Where the sharp directions end, and how much of the gap lies on either side.
# The paper puts the border at the steepest decrease of σ_g, where the sharp directions hold about half of its variance
# (section 4). Here: the steepest relative decrease among the n whose cumulative share of σ_g² is between 30 % and 70 %,
# and the n that first reaches 50 %. A decrease by less than 15 % is no border: then it is that 50 % n, and "no elbow".


WINDOW = (0.30, 0.70)
HALF = 0.50
ELBOW = 1.15


@dataclass(frozen=True)
class Border:
    """The number of sharp directions, and how it came about."""

    count: int
    elbow: bool
    ratio: float | None  # σ_count / σ_count+1; None where there is no next direction, or its σ_g is zero
    variance_share: float | None  # of σ_g², in the sharp directions
    note: str | None = None


def sharp_border(sigma_g: Sequence[float], total_variance: float) -> Border:
    """The border in σ_g (descending) when the variance over all directions, kept or not, is `total_variance`.

    >>> sharp_border([4.0, 3.9, 1.0, 0.9], 32.02)
    Border(count=2, elbow=True, ratio=3.9, variance_share=0.9747033104309806, note=None)
    """
    sigma = np.asarray(sigma_g, dtype=np.float64)
    if len(sigma) == 0 or total_variance <= 0 or sigma[0] == 0:
        return Border(0, False, None, None, "the effective gradients do not vary: there are no sharp directions")
    cumulative = np.cumsum(sigma**2) / total_variance
    reached = np.nonzero(cumulative >= HALF * (1 - 1e-12))[0]
    inside = np.nonzero((cumulative >= WINDOW[0]) & (cumulative <= WINDOW[1]))[0]
    candidates = sorted({*inside.tolist(), *reached[:1].tolist()})
    drops = {n: _ratio(sigma, n) for n in candidates if n + 1 < len(sigma)}
    best = max(drops, key=lambda n: drops[n], default=None)
    if best is not None and drops[best] >= ELBOW:
        return Border(best + 1, True, _finite(drops[best]), float(cumulative[best]))
    n = int(reached[0]) if len(reached) else len(sigma) - 1
    note = _note(len(reached) > 0, n, float(cumulative[n]))
    return Border(n + 1, False, _finite(drops.get(n, np.inf)), float(cumulative[n]), note)


def _ratio(sigma: Array, n: int) -> float:
    return float(sigma[n] / sigma[n + 1]) if sigma[n + 1] > 0 else float("inf")


def _finite(ratio: float) -> float | None:
    return ratio if np.isfinite(ratio) else None


def _note(reached: bool, n: int, held: float) -> str:
    if reached:
        return (
            "no clear border: the steepness falls off smoothly, so the directions that hold half of its variance count "
            "as sharp"
        )
    return (
        f"the {n + 1} kept directions hold only {held:.0%} of the variance of the effective gradients, so all of them "
        "count as sharp; raise --directions to look further"
    )
