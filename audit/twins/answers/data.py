"""What twins say of the data: what more of them would bring, and whether test is like train."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.intervals import normal_quantile, standard_error, student_quantile
from audit.maths.shares import Z95
from audit.report.twins import Curve, CurvePoint, Effect, HeldOut, Verdict
from audit.twins import Twin, TwinSet

# What would more data bring? The test error of twins on a quarter, a half and all of the train samples.
#
# On the logarithms of both, error against samples, a learning curve is nearly straight and its slope changes slowly.
# With slopes s₁ from a quarter to a half and s₂ from a half to all, the slope from all to twice as many is foretold
# as their mean, closer to the later one: (s₁ + 2 s₂)/3, never upwards. How far such a guess is off was measured on
# real learning curves (`OFF`); to that comes how well twins know each point, and how well so many test samples do.


STEPS = ("quarter", "half", "plain")
WEIGHTS = (-1 / 3, -1 / 3, 2 / 3)  # of their logarithms in the slope foretold
LEAST = 3  # twins at each point
OFF = 0.04  # deviation of the true slope from the foretold one: 12 forecasts for dense networks on three sets of images
PART = 0.3  # of the true slope, that it is off besides: found on ten forecasts for MNIST (samples/twin_rates.json)
LEAST_ERRORS = 5.0  # wrong answers in the mean, below which a slope is chance
NOT_MADE = "twins on a quarter, a half and all of the train samples are needed, three or more of each"
TINY = 1e-12
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
    by_tests, ahead = _of_tests(twins)
    t = student_quantile(len(last.values) - 1)
    slopes = _held(slope, math.hypot(Z95 * OFF, t * known, Z95 * by_tests))
    of_one = math.hypot(t * last.spread, Z95 * ahead)  # one network, trained on twice as many, on these tests
    ends = [now * math.exp(slope + math.copysign(math.hypot(end - slope, of_one), end - slope)) for end in slopes]
    changes = [now * math.expm1(end) for end in slopes]
    return Curve(
        points=shown,
        twice=now * math.exp(slope),
        twice_ci95=(ends[0], ends[1]),
        change=now * (math.exp(slope) - 1),
        change_ci95=(changes[0], changes[1]),
        verdict=_verdict_of_more(changes[0], changes[1]),
    )


def foretold(first: Point, second: Point, last: Point) -> tuple[float, float]:
    """The logarithm of the error on twice the samples less that of now, and its standard error over twins."""
    doublings = [math.log2(b.samples / a.samples) for a, b in ((first, second), (second, last))]
    slopes = [(b.log - a.log) / d for (a, b), d in zip(((first, second), (second, last)), doublings, strict=True)]
    slope = min(0.0, (slopes[0] + 2 * slopes[1]) / 3)
    known = math.sqrt(sum((w * point.error) ** 2 for w, point in zip(WEIGHTS, (first, second, last), strict=True)))
    return slope, known


def _held(slope: float, half: float) -> tuple[float, float]:
    """True slopes s that the foretold one does not contradict: |slope − s| ≤ √(half² + (1.96 PART s)²).

    The part that grows with s can make it steep, but not put it on the other side of zero.

    >>> low, high = _held(-0.2, 0.1)
    >>> low < -0.3 and -0.1 < high < 0
    True
    """
    rest = 1 - (Z95 * PART) ** 2
    root = math.sqrt(slope**2 - rest * (slope**2 - half**2))
    return (slope - root) / rest, (slope + root) / rest


def _of_tests(twins: TwinSet) -> tuple[float, float]:
    """Standard errors that the choice of the test samples leaves: in the slope foretold, and in the doubling to come.

    All twins answer the same samples, so the points' outcomes are taken together sample by sample, each relative to its
    mean. The doubling to come will change other samples, about as much as the last one did.
    """
    points = [_relative(twins, kind) for kind in STEPS]
    slope = sum((w * point for w, point in zip(WEIGHTS, points, strict=True)), np.zeros(1))
    return float(standard_error(slope, ddof=1)), float(standard_error(points[2] - points[1], ddof=1))


def _relative(twins: TwinSet, kind: str) -> Array:
    """How wrong the twins of a kind are on each test sample, in the mean and relative to their mean [tests]."""
    pairs = zip(twins.twins, twins.outcomes, strict=True)
    found = [one.test for twin, one in pairs if (twin.kind, twin.family, twin.reached) == (kind, twins.family, True)]
    mean = np.mean(found, axis=0)
    wrong = mean if twins.about.task == "regression" else 1 - mean
    return np.asarray(wrong / max(float(wrong.mean()), TINY))


def _verdict_of_more(low: float, high: float) -> Effect:
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


# Is test like train? Twins on a half of the train samples, on the other half and on test.
#
# Neither the other half nor test was seen, so if both come from one source the twins do as well on one as on the other,
# whatever they are good for. The difference of the means over samples has the standard error of two independent
# samples.


KIND = "half"
LEAST_HALVES = 2  # twins
RARELY = 0.001  # chance that two splits of one source are called different, to either side
CLEARLY = 0.1  # of the held-out error, that a difference must have to be called one
NO_HALVES = "two or more twins on a half of the train samples are needed"
DOUBT = (
    "twins do better on test than on train samples that they have not seen, as they would if test were easier or "
    "partly in train; but train labels that are probably wrong account for it"
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """What the twins of a kind do on train samples they were not trained on."""

    rows: NDArray[np.int64]  # [m] positions in train
    values: Array  # [m] share of wrong answers, or the loss, in the mean over the twins that have not seen the sample


def held_out(twins: TwinSet, suspects: Collection[int] = (), wrong_labels: float = 0.0) -> HeldOut:
    """The comparison; `suspects` are positions of train samples whose labels are probably wrong.

    `wrong_labels` is how large a share of all train labels may be so, by their neighbours: as many more mistakes there
    say nothing of test.
    """
    chosen = [
        (twin, outcomes)
        for twin, outcomes in zip(twins.twins, twins.outcomes, strict=True)
        if twin.kind == KIND and twin.family == twins.family
    ]
    if len(chosen) < LEAST_HALVES:
        return HeldOut(why=NO_HALVES)
    wrong = twins.about.task != "regression"
    seen = not_seen(twins, (KIND,))
    test = np.mean([1 - outcomes.test if wrong else outcomes.test for _, outcomes in chosen], axis=0)
    difference, error = _difference(test, seen.values)
    clean = seen.values[~np.isin(seen.rows, list(suspects))]
    verdict, why = _verdict_on_split(difference, error, float(seen.values.mean())), None
    if verdict == "easier" and (
        -difference - Z95 * error <= wrong_labels
        or (suspects and _verdict_on_split(*_difference(test, clean), float(clean.mean())) != "easier")
    ):
        verdict, why = "cannot tell", DOUBT
    return HeldOut(
        held_out=float(seen.values.mean()),
        test=float(test.mean()),
        difference=difference,
        ci95=(difference - Z95 * error, difference + Z95 * error),
        without_suspects=float(clean.mean()) if suspects and len(clean) else None,
        samples=len(seen.rows),
        twins=len(chosen),
        verdict=verdict,
        why=why,
    )


def not_seen(twins: TwinSet, kinds: Collection[str]) -> Seen:
    """Mean outcome of each train sample over the twins of these kinds that have not seen it."""
    parts = [
        outcomes.unseen
        for twin, outcomes in zip(twins.twins, twins.outcomes, strict=True)
        if twin.kind in kinds and twin.family == twins.family
    ]
    rows = np.concatenate([part.rows for part in parts])
    values = np.concatenate([part.outcomes for part in parts])
    found, place, counts = np.unique(rows, return_inverse=True, return_counts=True)
    means = np.bincount(place, values) / counts
    return Seen(found, means if twins.about.task == "regression" else 1 - means)


def _difference(test: Array, train: Array) -> tuple[float, float]:
    """Test minus train, and its standard error."""
    errors = [float(standard_error(part, ddof=1)) for part in (test, train)]
    return float(test.mean() - train.mean()), math.hypot(*errors)


def _verdict_on_split(difference: float, error: float, level: float) -> Verdict:
    rare = normal_quantile(RARELY / 2) * error
    if abs(difference) > max(rare, CLEARLY * level):
        return "shifted" if difference > 0 else "easier"
    return "same"
