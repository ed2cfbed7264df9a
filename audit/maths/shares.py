"""Shares: their intervals, those of differences, and the share that a guess gets right.

In plain Python: what draws a page need not wake numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from audit.maths import Interval

Z95 = 1.959963984540054  # 95 % of a normal lie within that many standard errors
GUESSING = 3.0  # standard errors above chance that a balanced accuracy must be to count as learnt
ENOUGH = 0.25  # of the way from guessing to no mistake: a class of one sample alone makes a standard error large

Classes = Sequence[tuple[int, float]]  # samples and share of wrong answers of each class that is present


def wilson(share: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Score interval of a proportion, `z` standard errors wide (Wilson 1927): also right at 0 and 1.

    >>> [round(bound, 4) for bound in wilson(0.0, 100)]
    [0.0, 0.037]
    """
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (0.0 if share == 0 else centre - half), (1.0 if share == 1 else centre + half)


def difference_interval(first: float, second: float, of_first: Interval, of_second: Interval) -> Interval:
    """Interval of first − second from the intervals of two independent estimates (Zou & Donner 2008).

    Of two shares with their Wilson intervals it is Newcombe's (1998, method 10).

    low = first − second − √((first − low₁)² + (high₂ − second)²), and the other way round.

    >>> [round(end, 3) for end in difference_interval(0.2, 0.1, wilson(0.2, 100), wilson(0.1, 100)) or ()]
    [0.0, 0.199]
    """
    if of_first is None or of_second is None:
        return None
    below = math.hypot(first - of_first[0], of_second[1] - second)
    above = math.hypot(of_first[1] - first, second - of_second[0])
    return first - second - below, first - second + above


def clearly_above(share: float, n: int, other: float) -> bool:
    """Whether a share of n samples is above `other` by its whole 95 % interval."""
    return wilson(share, n)[0] > other


# The one rule of what is no better than guessing. Balanced accuracy, the mean over classes of the share answered right,
# is 1/C for any guess, however skewed.


def chance(classes: int | None) -> float:
    """The balanced accuracy of any guess; a model with one score chooses between two classes.

    >>> chance(10), chance(1), chance(None)
    (0.1, 0.5, 0.5)
    """
    return 1 / max(classes or 0, 2)


def balanced_accuracy(classes: Classes) -> float:
    """The mean over classes of the share answered right.

    >>> balanced_accuracy([(90, 0.0), (10, 1.0)])
    0.5
    """
    return sum(1 - error for _, error in classes) / len(classes)


def guess_slack(classes: Classes, guess: float) -> float:
    """Three standard errors of the balanced accuracy of a guesser who is right in a share `guess`."""
    return GUESSING * math.sqrt(sum(guess * (1 - guess) / samples for samples, _ in classes)) / len(classes)


def no_better_than_guessing(classes: Classes, guess: float) -> bool:
    """Whether samples and error of each class are what a guesser's might be, who is right in a share `guess`.

    >>> no_better_than_guessing([(50, 0.5), (50, 0.48)], 0.5), no_better_than_guessing([(50, 0.1), (50, 0.2)], 0.5)
    (True, False)
    """
    return balanced_accuracy(classes) <= guess + min(guess_slack(classes, guess), ENOUGH * (1 - guess))


def clearly_guessing(classes: Classes, guess: float) -> bool:
    """The same, where there are enough samples to see a model that is better."""
    slack = guess_slack(classes, guess)
    return slack <= ENOUGH * (1 - guess) and balanced_accuracy(classes) <= guess + slack
