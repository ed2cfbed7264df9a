"""The best one-to-one assignment of rows to columns, and the chance of as many heads in tosses of a fair coin."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


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
