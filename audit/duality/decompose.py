"""The gap of one layer's pairs, direction by direction (Feng & Tu, Eqs. 9–11).

⟨Δl⟩ = Σ_n cov(g_n, w_n) + Σ_n ⟨g_n⟩⟨w_n⟩ holds for every orthonormal basis: it is an identity, not a prediction. Pairs
that differ in nothing but their targets, as in a regression, have ΔW = 0 and are a term of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.blocks.duality import FixedSplit, FlatPart, Remainder, SharpPart
from audit.duality.basis import STILL, Basis, Projections, settle
from audit.duality.bootstrap import Array, Evidence, Part
from audit.duality.layer import Duals, LayerPairs
from audit.duality.split import Border, sharp_border


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


def decompose(duals: Duals, numbers: LayerPairs, basis: Basis, leading: int, classes: int | None) -> Decomposition:
    """Splits the gap along `basis`, sharp directions first."""
    alive = numbers.alive
    s = numbers.s[alive]
    found = settle(basis, duals.project(basis.vectors)[alive], s, leading)
    w, g = found.w, s[:, None] * found.w
    contribution = ((g - g.mean(0)) * (w - w.mean(0))).mean(0)
    sigma_w = w.std(0, correction=0)
    remainder = _remainder(numbers, basis, found, sigma_w, contribution)
    border = sharp_border(found.sigma_g.tolist(), numbers.total_g)
    total = float(contribution.sum()) + remainder.contribution
    part, share = _part_of(contribution, border.count, total)
    return Decomposition(
        projections=found,
        sigma_w=sigma_w.cpu().numpy(),
        c=_correlations(numbers, found.sigma_g, sigma_w, contribution),
        contribution=contribution.cpu().numpy(),
        remainder=remainder,
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
        fixed=_fixed(contribution, classes, total, basis.complete),
        share_skipped=None if total > 0 else f"the directions' sum is not positive ({total:.3g}): it has no shares",
        evidence=Evidence(
            numbers.gap[alive].cpu().numpy(), _sharp_part(w, s, border.count), _whole_part(duals, numbers)
        ),
    )


def _part_of(contribution: Tensor, count: int, total: float) -> tuple[float, float | None]:
    """What the first `count` directions contribute, and their share."""
    part = float(contribution[:count].sum())
    return part, part / total if total > 0 else None


def _fixed(contribution: Tensor, classes: int | None, total: float, complete: bool) -> FixedSplit | None:
    if classes is None or (classes > len(contribution) and not complete):
        return None
    count = min(classes, len(contribution))
    part, share = _part_of(contribution, count, total)
    return FixedSplit(count=count, contribution=part, share=share)


def _remainder(
    numbers: LayerPairs, basis: Basis, found: Projections, sigma_w: Tensor, contribution: Tensor
) -> Remainder:
    """What the kept directions leave: by subtraction from totals that need no directions."""
    if basis.complete:
        return Remainder(directions=0, contribution=0.0, sigma_g=0.0, sigma_w=0.0)
    return Remainder(
        directions=numbers.mean_w.numel() - len(contribution),
        contribution=numbers.mean_gap - numbers.target_term - numbers.mean_term - float(contribution.sum()),
        sigma_g=max(0.0, numbers.total_g - float(found.sigma_g.square().sum())) ** 0.5,
        sigma_w=max(0.0, numbers.total_w - float(sigma_w.square().sum())) ** 0.5,
    )


def _correlations(numbers: LayerPairs, sigma_g: Tensor, sigma_w: Tensor, contribution: Tensor) -> list[float | None]:
    """c_n = cov/(σ_g σ_w); None where one of them does not vary beyond rounding."""
    varies = (sigma_g > STILL * numbers.total_g**0.5) & (sigma_w > STILL * numbers.total_w**0.5)
    c = (contribution / torch.where(varies, sigma_g * sigma_w, 1.0)).clamp(-1, 1)
    return [value if kept else None for value, kept in zip(c.tolist(), varies.tolist(), strict=True)]


def _sharp_part(w: Tensor, s: Tensor, count: int) -> Part:
    w = w[:, :count]
    g = s[:, None] * w
    return _part((g * w).sum(1), w @ g.mean(0), g @ w.mean(0))


def _whole_part(duals: Duals, numbers: LayerPairs) -> Part:
    """All directions, kept or not: projections on the means themselves."""
    on_means = duals.project(torch.stack([numbers.mean_g, numbers.mean_w]))[numbers.alive]
    s, squared = numbers.s[numbers.alive], numbers.squared_norm[numbers.alive]
    return _part(s * squared, on_means[:, 0], s * on_means[:, 1])


def _part(*columns: Tensor) -> Part:
    return Part(*(column.cpu().numpy() for column in columns))
