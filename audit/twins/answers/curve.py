"""What would more data bring? The test error of twins on a quarter, a half and all of the train samples.

On the logarithms of both, error against samples, a learning curve is nearly straight and bends slowly. With slopes s₁
from a quarter to a half and s₂ from a half to all, the slope from all to twice as many is foretold as their mean,
closer to the later one: (s₁ + 2 s₂)/3, never upwards. How far such a guess is off was measured on real learning curves
(`OFF`); to that comes how well twins know each point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.maths.intervals import student_quantile
from audit.maths.shares import Z95
from audit.report.twins import Curve, CurvePoint, Effect
from audit.twins.index import Twin, TwinSet

STEPS = ("quarter", "half", "plain")
LEAST = 3  # twins at each point
OFF = 0.04  # deviation of the true slope from the foretold one: 12 forecasts for dense networks on three sets of images
LEAST_ERRORS = 5.0  # wrong answers in the mean, below which a slope is chance
NOT_MADE = "twins on a quarter, a half and all of the train samples are needed, three or more of each"
NO_ERRORS = "twins make too few mistakes for a curve"


@dataclass(frozen=True)
class Point:
    """Twins on so many samples: mean of the logarithm, and its standard error."""

    samples: int
    values: Sequence[float]

    @property
    def log(self) -> float:
        """Of the mean."""
        return math.log(float(np.mean(self.values)))

    @property
    def error(self) -> float:
        """Standard error of `log`."""
        return self.spread / math.sqrt(len(self.values))

    @property
    def spread(self) -> float:
        """Deviation of one twin from the next, relative to the mean."""
        return float(np.std(self.values, ddof=1)) / float(np.mean(self.values))


def curve(twins: TwinSet, tests: int) -> Curve:
    """The learning curve of the twins' test error, or of their test loss in a regression."""
    points = [_point(twins.of(kind), twins.about.task == "regression") for kind in STEPS]
    shown = [_shown(point) for point in points if point is not None]
    if any(point is None or len(point.values) < LEAST for point in points):
        return Curve(points=shown, skipped=NOT_MADE)
    first, second, last = (point for point in points if point is not None)
    if min(last.values) <= 0 or (
        twins.about.task != "regression" and float(np.mean(last.values)) * tests < LEAST_ERRORS
    ):
        return Curve(points=shown, skipped=NO_ERRORS)
    now = float(np.mean(last.values))
    slope, known = foretold(first, second, last)
    t = student_quantile(len(last.values) - 1)
    of_mean = math.hypot(Z95 * OFF, t * known)
    of_one = math.hypot(of_mean, t * last.spread)  # where one network, trained on twice as many, will lie
    ends = [now * math.exp(slope + sign * of_one) for sign in (-1, 1)]
    changes = [now * (math.exp(slope + sign * of_mean) - 1) for sign in (-1, 1)]
    return Curve(
        points=shown,
        twice=now * math.exp(slope),
        twice_ci95=(ends[0], ends[1]),
        change=now * (math.exp(slope) - 1),
        change_ci95=(changes[0], changes[1]),
        verdict=_verdict(changes[0], changes[1]),
    )


def foretold(first: Point, second: Point, last: Point) -> tuple[float, float]:
    """The logarithm of the error on twice the samples less that of now, and its standard error over twins."""
    doublings = [math.log2(b.samples / a.samples) for a, b in ((first, second), (second, last))]
    slopes = [(b.log - a.log) / d for (a, b), d in zip(((first, second), (second, last)), doublings, strict=True)]
    slope = min(0.0, (slopes[0] + 2 * slopes[1]) / 3)
    weights = (-1 / 3, -1 / 3, 2 / 3)  # of the three points in it
    known = math.sqrt(sum((w * point.error) ** 2 for w, point in zip(weights, (first, second, last), strict=True)))
    return slope, known


def _verdict(low: float, high: float) -> Effect:
    return "helps" if high < 0 else "cannot tell"


def _point(twins: Sequence[Twin], regression: bool) -> Point | None:
    reached = [twin for twin in twins if twin.reached]
    values = [twin.test_loss if regression else twin.test_error or 0.0 for twin in reached]
    return Point(reached[0].train_samples, values) if len(values) > 1 and min(values) > 0 else None


def _shown(point: Point) -> CurvePoint:
    mean = float(np.mean(point.values))
    half = student_quantile(len(point.values) - 1) * mean * point.error
    ends = (max(0.0, mean - half), mean + half)
    return CurvePoint(train_samples=point.samples, test=mean, test_ci95=ends, twins=len(point.values))
