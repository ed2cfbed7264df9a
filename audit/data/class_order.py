"""Do the labels mean the model's outputs in another order? Which of some trials are much better than the rest?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.report.conduct import WIDE, ClassOrder, Trial

# Do the labels mean the model's outputs in another order? Asked always: two swapped classes hide in good scores.


MOSTLY = 2 / 3  # of the answers within a circle that must go to the next class, not to the own one

Classes = NDArray[np.int64]


def class_order(labels: Classes, answers: Classes, names: Sequence[str], as_stored: Sequence[str]) -> ClassOrder:
    """The order of the classes that the answers [n] to samples with these labels [n] speak for.

    On every second sample of each class the best one-to-one assignment of labels to answers is found, and each circle
    of classes in it is tested on the other samples: are those of its classes answered by the next class in the circle
    rather than by their own? Were the order right, each such answer would at best be a fair coin's, also of two classes
    that look alike. `as_stored` are the classes as `--classes` has to name them.
    """
    first = _every_second(labels)
    own = np.arange(len(names))
    found = best_assignment(
        2.0 * len(names) * _confusion(labels[first], answers[first], len(names)) + np.eye(len(names))
    )
    tested, circles = _confusion(labels[~first], answers[~first], len(names)), cycles(found)
    chances = {tuple(circle): len(circles) * _chance_of_circle(tested, circle, found) for circle in circles}
    wrong = [circle for circle, chance in chances.items() if chance <= RARELY]
    meant = own.copy()  # of each label, the output that means it
    for circle in wrong:
        meant[list(circle)] = found[list(circle)]
    moved = [label for circle in wrong for label in circle]
    label_of = np.argsort(meant)
    return ClassOrder(
        samples=len(labels),
        moved=[names[label] for label in moved],
        right=float((answers == labels).mean()),
        right_if_moved=float((answers == meant[labels]).mean()),
        p_value=min(1.0, max((chances[circle] for circle in wrong), default=min(chances.values(), default=1.0))),
        cure=f"--classes {_quoted([as_stored[label] for label in label_of])}" if moved else "",
    )


def _chance_of_circle(counts: NDArray[np.float64], circle: Sequence[int], meant: Classes) -> float:
    """Of as many answers by the next class, among those by it and by the own one; 1 where they are not most."""
    own = sum(int(counts[label, label]) for label in circle)
    other = sum(int(counts[label, meant[label]]) for label in circle)
    return sign_test(other, own + other) if other >= MOSTLY * (own + other) > 0 else 1.0


def _confusion(labels: Classes, answers: Classes, classes: int) -> NDArray[np.float64]:
    """Samples by label (row) and answer (column) [C, C]."""
    return np.bincount(classes * labels + answers, minlength=classes**2).reshape(classes, classes).astype(np.float64)


def _every_second(labels: Classes) -> NDArray[np.bool_]:
    """Every second sample of each class [n]."""
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(labels), np.int64)
    starts = np.searchsorted(labels[order], labels[order])
    place[order] = np.arange(len(labels)) - starts
    return np.asarray(place % 2 == 0)


def _quoted(names: Sequence[str]) -> str:
    """Names for a command line."""
    joined = ",".join(names)
    plain = all(character.isalnum() or character in "_-.,+:@/" for character in joined)
    return joined if plain else "'" + joined.replace("'", "'\\''") + "'"


# Is another preprocessing much better than the one in use? Judged by what the model knows with each.
#
# A larger input makes a model surer of itself, and a model that was stopped early is not sure enough: its loss would
# fall under any preprocessing with more contrast. So losses are compared at the temperature that suits each trial best;
# those of a regression, after the straight line that suits it best.


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
            p_value=_chance_of_gain(one.fitted, now.fitted, tries),
            size=one.size,
        )
        for one in found
    ]


def _chance_of_gain(other: Array, now: Array, tries: int) -> float:
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


# The best one-to-one assignment of rows to columns, and the chance of as many heads in tosses of a fair coin.


def best_assignment(gain: NDArray[np.float64]) -> NDArray[np.int64]:
    """The column of each row, all different, with the largest total of gain [C, C] (Kuhn 1955, Munkres 1957).

    Shortest augmenting paths with dual prices u of rows and v of columns, one row after the other: C³ at most, and C²
    where most rows take their own column.

    >>> best_assignment(np.array([[5.0, 9.0], [8.0, 7.0]])).tolist()
    [1, 0]
    """
    cost = gain.max() - gain
    C = len(cost)
    u, v = np.zeros(C), np.zeros(C)
    row_of = np.full(C, -1)
    for start in range(C):
        _augment(cost, start, u, v, row_of)
    columns = np.empty(C, np.int64)
    columns[row_of] = np.arange(C)
    return columns


def _augment(
    cost: NDArray[np.float64],
    start: int,
    u: NDArray[np.float64],
    v: NDArray[np.float64],
    row_of: NDArray[np.int64],
) -> None:
    """Gives row `start` a column, moving others on along the cheapest path; brings prices and `row_of` up to date."""
    C = len(cost)
    reach, before, done = np.full(C, np.inf), np.full(C, -1), np.zeros(C, bool)
    row, column, length = start, -1, 0.0
    while True:
        through = length + cost[row] - u[row] - v
        nearer = ~done & (through < reach)
        reach[nearer], before[nearer] = through[nearer], column
        column = int(np.where(done, np.inf, reach).argmin())
        length = float(reach[column])
        if row_of[column] < 0:
            break
        done[column] = True
        row = int(row_of[column])
    u[start] += length
    u[row_of[done]] += length - reach[done]
    v[done] -= length - reach[done]
    while column >= 0:
        previous = int(before[column])
        row_of[column] = start if previous < 0 else row_of[previous]
        column = previous


def cycles(permutation: NDArray[np.int64]) -> list[list[int]]:
    """The cycles of a permutation that move something, each from its smallest member on.

    >>> cycles(np.array([1, 0, 2, 4, 5, 3]))
    [[0, 1], [3, 4, 5]]
    """
    found, seen = [], set()
    for first in range(len(permutation)):
        cycle, at = [], first
        while at not in seen:
            seen.add(at)
            cycle.append(at)
            at = int(permutation[at])
        found += [cycle] if len(cycle) > 1 else []
    return found


def sign_test(heads: int, tosses: int) -> float:
    """The chance that a fair coin gives at least so many heads: one side of the exact sign test.

    >>> round(1024 * sign_test(10, 10), 9), sign_test(0, 5)
    (1.0, 1.0)
    """
    if heads <= 0:
        return 1.0
    whole = math.lgamma(tosses + 1) - tosses * math.log(2)
    logs = [whole - math.lgamma(k + 1) - math.lgamma(tosses - k + 1) for k in range(heads, tosses + 1)]
    return min(1.0, math.fsum(math.exp(log) for log in logs))
