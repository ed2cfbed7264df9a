"""Is another preprocessing much better than the one in use? Judged by what the model knows with each.

A larger input makes a model surer of itself, and a model that was stopped early is not sure enough: its loss would fall
under any preprocessing with more contrast. So losses are compared at the temperature that suits each trial best; those
of a regression, after the straight line that suits it best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.assignment import sign_test
from audit.report.doctor import WIDE, Trial

RARELY = 0.001  # chance, over all trials, of what is called better
LOST = 0.03  # of what the model knows with the other preprocessing, that it must not know with the one in use
TOO_SURE = 0.5  # sharpness at most, of a model that is far too sure of itself on the samples it was trained on
NATS = 10.0  # that the best temperature must gain over all samples, to be more than chance
BY_HALF = 0.5  # of its loss, that must go with another preprocessing
ABOUT = 0.05  # of the constant answer's loss, that the other preprocessing may know less by, or cost as it is

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """How the model does on the samples tried, fed in one way."""

    name: str
    cure: str
    loss: Array  # [n]
    fitted: Array  # [n] at the best temperature, or after the best straight line
    sharpness: float
    wrong: Array | None  # [n] 0 or 1; None for regression
    size: float  # standard deviation of the numbers fed

    @property
    def finite(self) -> bool:
        """Whether every sample has a loss."""
        return bool(np.isfinite(self.loss).all() and np.isfinite(self.fitted).all())


def compared(found: list[Answers]) -> list[Trial]:
    """Each against the first, which is how the samples are fed."""
    now, tries = found[0], max(1, len(found) - 1)
    return [
        Trial(
            name=one.name,
            cure=one.cure,
            loss=float(one.loss.mean()),
            fitted_loss=float(one.fitted.mean()),
            sharpness=one.sharpness,
            error=None if one.wrong is None else float(one.wrong.mean()),
            p_value=_chance(one.fitted, now.fitted, tries),
            size=one.size,
        )
        for one in found
    ]


def _chance(other: Array, now: Array, tries: int) -> float:
    """Of losses so much lower: the smaller of the sign test's and the paired z test's, twice, times the tries."""
    lower, higher = int((other < now).sum()), int((other > now).sum())
    gain = now - other
    gain = gain / (np.abs(gain).max() or 1.0)  # the test has no unit, and the squares of large losses overflow
    error = gain.std() / math.sqrt(len(gain))
    by_mean = math.erfc(gain.mean() / error / math.sqrt(2)) / 2 if error > 0 else 1.0
    return min(1.0, 2 * tries * min(sign_test(lower, lower + higher), by_mean))


def much_better(trials: list[Trial], constant: float, samples: int) -> int | None:
    """The place of the trial with the lowest fitted loss of those that are much better than the first.

    `constant` is what the best constant answer costs, in the mean over the samples.
    """
    now = trials[0]
    found = [
        place
        for place, other in enumerate(trials)
        if place and (_knows_more(other, now, constant) or _less_sure(other, now, constant, samples))
    ]
    return min(found, key=lambda place: (trials[place].fitted_loss, trials[place].loss), default=None)


def in_range(trials: list[Trial], constant: float, spread: float) -> int | None:
    """The place of the trial that fits best, of those whose inputs are small enough where those in use are too large.

    `spread` is that of the first layer's answers as fed. A network with few mistakes answers alike at both sizes, only
    more loudly, so that losses do not tell them apart. But had it been trained on the large numbers, its scores would
    shrink with them, and cost about what a constant answer does.
    """
    if spread <= WIDE:
        return None
    most = trials[0].size * WIDE / spread
    fits = [place for place, one in enumerate(trials) if place and one.size <= most and one.loss <= ABOUT * constant]
    return min(fits, key=lambda place: trials[place].loss, default=None)


def _knows_more(other: Trial, now: Trial, constant: float) -> bool:
    """Whether a good part of what the model can know is lost as it is fed."""
    knows, lost = constant - other.fitted_loss, now.fitted_loss - other.fitted_loss
    return other.p_value <= RARELY and other.loss < now.loss and knows > 0 and lost >= LOST * knows


def _less_sure(other: Trial, now: Trial, constant: float, samples: int) -> bool:
    """Whether the model is absurdly sure of itself as it is fed, on its own train samples, and knows as much if not."""
    absurd = now.sharpness <= TOO_SURE and samples * (now.loss - now.fitted_loss) >= NATS
    as_much = other.fitted_loss <= now.fitted_loss + ABOUT * constant
    return absurd and as_much and other.sharpness > TOO_SURE and other.loss <= BY_HALF * now.loss
