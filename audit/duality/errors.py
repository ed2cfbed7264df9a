"""Standard errors over pairs, to first order: the deviation of what each pair adds to a number, over √K.

The directions are held fixed, as in the bootstrap of the shares (bootstrap.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.duality.bootstrap import Part

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
    """Of projections w, g [K, N] with correlations c [N]."""
    w, g = w - w.mean(0), g - g.mean(0)
    sigma_w, sigma_g = (part.std(0, correction=0) for part in (w, g))
    unit_w, unit_g = (part / torch.where(sigma > 0, sigma, 1.0) for part, sigma in ((w, sigma_w), (g, sigma_g)))
    added_w = sigma_w / 2 * unit_w.square()  # σ² moves by the square, σ by half of it over σ
    correlation = torch.tensor([value or 0.0 for value in c], dtype=w.dtype, device=w.device)
    c_error = _error(unit_g * unit_w - correlation / 2 * (unit_g.square() + unit_w.square()))
    return DirectionErrors(
        sigma_g=_error(sigma_g / 2 * unit_g.square()),
        sigma_w=_error(added_w),
        cumulative_w=_error(added_w.cumsum(1)),
        c=[None if value is None else error for value, error in zip(c, c_error, strict=True)],
        contribution=_error(g * w),
    )


def total_errors(pairs: PairColumns, sigma_g: float, sigma_w: float) -> TotalErrors:
    """`sigma_g` and `sigma_w` are those of the remainder."""
    whole, kept = pairs.whole, pairs.kept
    return TotalErrors(
        mean_term=error_of(whole.g_mean_w + whole.w_mean_g),
        target_term=error_of(pairs.target),
        total_g=error_of(pairs.variance_g),
        total_w=error_of(pairs.variance_w),
        second_moment_w=error_of(pairs.square_w),
        remainder=error_of(whole.first_order() - kept.first_order()),
        remainder_sigma_g=_of_root(pairs.variance_g - pairs.kept_variance_g, sigma_g),
        remainder_sigma_w=_of_root(pairs.variance_w - pairs.kept_variance_w, sigma_w),
    )


def share_error(part: Part, whole: Part, total: float) -> float | None:
    """Of part/whole; None where the whole is not positive."""
    if total <= 0:
        return None
    return error_of((part.first_order() - part.contribution / total * whole.first_order()) / total)


def error_of(added: Array) -> float:
    """Standard error of a mean."""
    return float(added.std() / len(added) ** 0.5)


def _of_root(added: Array, sigma: float) -> float:
    """Of σ, where σ² is the mean of what is added."""
    return error_of(added) / (2 * sigma) if sigma > 0 else 0.0


def _error(added: Tensor) -> list[float]:
    errors: list[float] = (added.std(0, correction=0) / len(added) ** 0.5).tolist()
    return errors
