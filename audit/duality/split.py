"""Where the sharp directions end, and how much of the gap lies on either side.

The paper puts the border at the steepest decrease of σ_g, where the sharp directions hold about half of its variance
(section 4). Here: the steepest relative decrease among the n whose cumulative share of σ_g² is between 30 % and 70 %,
and the n that first reaches 50 %. A decrease by less than 15 % is no border: then it is that 50 % n, and "no elbow".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WINDOW = (0.30, 0.70)
HALF = 0.50
ELBOW = 1.15

Array = NDArray[np.float64]


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
