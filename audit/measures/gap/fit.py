"""How well a regression fits one split: RMSE and R², with bootstrap intervals over samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import interval, resampled_means
from audit.network.outcome import Outcome
from audit.report.fields import Interval

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Two numbers of a split; `r2` is None where a target never varies."""

    rmse: float
    rmse_ci95: Interval
    r2: float | None
    r2_ci95: Interval


def measure_fit(outcome: Outcome, draws: int, seed: int) -> Fit:
    """Both are functions of means over samples: of squared errors, targets and squared targets, output by output."""
    targets, errors = _centred(outcome), (outcome.scores - outcome.targets) ** 2
    scale = max(float(errors.max()), float((targets**2).max()), np.finfo(np.float64).tiny)  # keeps squares in range
    columns = np.concatenate([errors / scale, targets / np.sqrt(scale), targets**2 / scale], 1)
    drawn = np.split(resampled_means(columns, draws, seed), 3, axis=1)
    r2 = r_squared(outcome)
    return Fit(
        rmse=float(np.sqrt(errors.mean())),
        rmse_ci95=interval(np.sqrt(scale * drawn[0].mean(1))),
        r2=r2,
        r2_ci95=None if r2 is None else interval(_explained(*drawn)),
    )


def r_squared(outcome: Outcome) -> float | None:
    """1 − residual/total sum of squares, averaged over outputs; None where a target never varies."""
    targets = _centred(outcome)
    total = (targets**2).sum(0)
    if (total == 0).any():
        return None
    return float(np.mean(1 - ((outcome.scores - outcome.targets) ** 2).sum(0) / total))


def _centred(outcome: Outcome) -> Array:
    centred: Array = outcome.targets - outcome.targets.mean(0)
    return centred


def _explained(errors: Array, targets: Array, squares: Array) -> Array:
    """R² of each draw from its means [draws, C]; NaN where a draw's targets do not vary."""
    total = squares - targets**2
    varies = (total > 0).all(1)
    explained: Array = np.mean(1 - errors / np.where(total > 0, total, 1.0), 1)
    return np.where(varies, explained, np.nan)
