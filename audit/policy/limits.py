"""Decides between an interval and a limit, and leaves open what the interval leaves open."""

from __future__ import annotations

from audit.policy.rules import Bound, Interval, Status


def status_of(value: float, interval: Interval, bound: Bound, limit: float) -> Status:
    """Passed where the whole interval keeps the limit, failed where none of it does, else inconclusive.

    >>> status_of(0.04, (0.03, 0.06), "max", 0.05)
    'inconclusive'
    >>> status_of(0.04, None, "max", 0.05)
    'passed'
    """
    low, high = span(value, interval)
    if bound == "min":
        low, high, limit = -high, -low, -limit
    if high <= limit:
        return "passed"
    return "failed" if low > limit else "inconclusive"


def span(value: float, interval: Interval) -> tuple[float, float]:
    """The interval, widened to hold the value: a percentile interval of a skewed number may lie beside it."""
    low, high = interval or (value, value)
    return min(low, value), max(high, value)
