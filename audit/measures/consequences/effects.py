"""What a change did to n samples: means of paired differences, with their intervals.

A difference of a sample is the mean over the draws of what was random. Where one draw is shared by all samples, as a
change of weights is, the draws are a second source of chance: the interval's half widths are √(h² + (t σ/√m)²), h by
the samples, σ the standard deviation over m independent draws, t Student's with m − 1 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audit.maths import Interval
from audit.maths.intervals import score_bounds, student_quantile
from audit.maths.resample import Bootstrap, interval
from audit.maths.shares import wilson
from audit.measures.consequences.samples import Answers

Array = NDArray[np.float64]


def column(values: Tensor) -> Array:
    """[n] as numpy has it."""
    return np.asarray(values.cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True)
class Effect:
    """Answers before and after a change, sample by sample."""

    before: Answers
    after: Sequence[Answers]  # by draw
    shared: bool  # whether a draw is one for all samples; then draws are pairs of opposite ones

    @property
    def finite(self) -> bool:
        """Whether all scores and losses are."""
        return all(bool(each.loss.isfinite().all()) for each in self.after)

    def loss_differences(self) -> Array:
        """[draws, n]."""
        return np.stack([column(each.loss - self.before.loss) for each in self.after])

    def score_differences(self) -> Array:
        """‖f′ − f‖ [draws, n]."""
        return np.stack([column(each.moved) for each in self.after])


class Means:
    """Means of columns over samples and draws, under one bootstrap over the samples."""

    def __init__(self, columns: Sequence[Array], bootstrap: Bootstrap, stream: int) -> None:
        stacked = np.stack([each.mean(0) for each in columns], 1)  # [n, k] of columns [draws, n]
        scale = np.maximum(np.abs(stacked).max(0), np.finfo(np.float64).tiny)
        self._columns, self._drawn = columns, bootstrap.means(stacked / scale, stream) * scale

    def mean(self, place: int) -> float:
        """Of one column."""
        return float(self._columns[place].mean())

    def ci95(self, place: int, shared: bool = False) -> Interval:
        """Its interval; wider where draws are `shared` by all samples."""
        ends, mean = interval(self._drawn[:, place]), self.mean(place)
        if ends is None:
            return None
        slack = draw_error(self._columns[place].mean(1)) if shared else 0.0
        return mean - math.hypot(mean - ends[0], slack), mean + math.hypot(ends[1] - mean, slack)


def draw_error(by_draw: Array) -> float:
    """Half width of the 95 % interval of a mean over draws [2 m], whose opposite pairs stand side by side."""
    pairs = by_draw.reshape(-1, 2).mean(1)
    if len(pairs) < 2:
        return 0.0
    return student_quantile(len(pairs) - 1) * float(pairs.std(ddof=1)) / math.sqrt(len(pairs))


def error_change(effect: Effect) -> dict[str, Any]:
    """Share of wrong answers after the change, and paired with the share before; nothing for regression.

    With b samples answered wrongly only after the change and c only before, means over draws, the interval of
    (b − c)/n is Tango's (1998).
    """
    before, answer = effect.before.wrong, effect.before.answer
    if before is None or answer is None:
        return {}
    wrong = np.stack([column(each.wrong) for each in effect.after if each.wrong is not None])  # [draws, n]
    other = np.stack([column(each.answer.ne(answer)) for each in effect.after if each.answer is not None])
    differences = wrong - column(before)
    n, by_draw = wrong.shape[1], differences.mean(1)
    b, c = np.clip(differences, 0, None).mean(0).sum(), np.clip(-differences, 0, None).mean(0).sum()
    low, high = score_bounds(float(b), float(c), n)
    change, slack = float(by_draw.mean()), draw_error(by_draw) if effect.shared else 0.0
    return {
        "error": float(wrong.mean()),
        "error_ci95": wilson(float(wrong.mean()), n),
        "error_change": change,
        "error_change_ci95": (change - math.hypot(change - low, slack), change + math.hypot(high - change, slack)),
        "error_change_std": spread(by_draw),
        "answers_changed": float(other.mean()),
        "answers_changed_ci95": wilson(float(other.mean()), n),
    }


def spread(by_draw: Array) -> float | None:
    """Standard deviation over draws; None of a single one."""
    return float(by_draw.std(ddof=1)) if len(by_draw) > 1 else None


def rmse(means: Means, place: int, outputs: int) -> dict[str, Any]:
    """Root mean squared error over samples and outputs, from a column of losses ½ ‖f − y‖²."""
    ends = means.ci95(place)
    size = [math.sqrt(max(0.0, 2 * value / outputs)) for value in (means.mean(place), *(ends or ()))]
    return {"rmse": size[0], "rmse_ci95": (size[1], size[2]) if ends else None}
