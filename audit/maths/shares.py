"""Intervals of shares and of differences, in plain Python: what draws a page need not wake numpy."""

from __future__ import annotations

import math

from audit.maths import Interval

Z95 = 1.959963984540054  # 95 % of a normal lie within that many standard errors


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % score interval of a proportion (Wilson 1927): also right at 0 and 1.

    >>> [round(bound, 4) for bound in wilson(0.0, 100)]
    [0.0, 0.037]
    """
    z = Z95
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (0.0 if share == 0 else centre - half), (1.0 if share == 1 else centre + half)


def difference_interval(first: float, second: float, of_first: Interval, of_second: Interval) -> Interval:
    """Interval of first − second from the intervals of two independent estimates (Zou & Donner 2008).

    Of two shares with their Wilson intervals it is Newcombe's (1998, method 10).

    low = first − second − √((first − low₁)² + (high₂ − second)²), and the other way round.
    """
    if of_first is None or of_second is None:
        return None
    below = math.hypot(first - of_first[0], of_second[1] - second)
    above = math.hypot(of_first[1] - first, second - of_second[0])
    return first - second - below, first - second + above
