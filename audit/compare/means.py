"""The 95 % interval of a mean over samples: of the differences d_i = new − old of two models on the same samples.

Losses have heavy tails: a few samples that one model gets confidently wrong make up most of the mean. The interval is
the wider, on each side, of

  the typical values of random halves (Hartigan 1969): each sample is in a half with probability ½; the interval reaches
    from the 2.5th to the 97.5th percentile of the halves' means. It excludes 0 exactly where the permutation test that
    exchanges the two models' losses on random samples rejects, so with exchangeable models at most 5 % of comparisons
    exclude it, whatever the tails;
  Student's interval (1908): mean ± t s/√n, which is the wider one where samples are few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from audit.fields import Interval

Array = NDArray[np.float64]
HALVES = 3999  # random halves: 2.5 % of 4000 is a whole number of them
TAIL = 100
AT_ONCE = 1 << 20  # memberships drawn at once
SEED = 0


def mean_intervals(columns: Array) -> list[Interval]:
    """One interval for each column of [n, k]; None where there is only one sample."""
    if len(columns) < 2:
        return [None] * columns.shape[1]
    halves = halves_bounds(columns)
    student = student_bounds(columns)
    low, high = np.minimum(halves[0], student[0]), np.maximum(halves[1], student[1])
    return list(zip(low.tolist(), high.tolist(), strict=True))


def mean_interval(values: Array) -> Interval:
    """The interval of one column [n]."""
    return mean_intervals(values[:, None])[0]


def halves_bounds(columns: Array) -> tuple[Array, Array]:
    """Hartigan's bounds [k] each: order statistics of the halves' means."""
    means = np.concatenate(list(_means_of_halves(columns)))
    means.sort(axis=0)
    return means[TAIL - 1], means[-TAIL]


def _means_of_halves(columns: Array) -> Iterator[Array]:
    """Means [some halves, k] of the samples in each half."""
    rng, n = np.random.default_rng(SEED), len(columns)
    rows = max(1, AT_ONCE // n)
    for start in range(0, HALVES, rows):
        members = rng.integers(0, 2, size=(min(rows, HALVES - start), n), dtype=np.uint8).astype(np.float64)
        members[members.sum(1) == 0] = 1.0  # a half without members has no mean; it happens with a handful of samples
        yield members @ columns / members.sum(1, keepdims=True)


def student_bounds(columns: Array) -> tuple[Array, Array]:
    """Student's bounds [k] each."""
    n = len(columns)
    half = student_quantile(n - 1) * columns.std(0, ddof=1) / math.sqrt(n)
    return columns.mean(0) - half, columns.mean(0) + half


@cache
def student_quantile(freedom: float) -> float:
    """The 97.5th percentile of Student's t with ν ≥ 1 degrees of freedom.

    With t = √ν / tan ψ the density is sin^{ν−1} ψ on (0, π), summed up here on points that crowd at 0; for large ν the
    expansion around the normal percentile z (Abramowitz & Stegun 26.7.5).

    >>> round(student_quantile(1), 3), round(student_quantile(10), 4), round(student_quantile(1e6), 4)
    (12.706, 2.2281, 1.96)
    """
    if freedom > 100:
        z = 1.959963984540054
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    angles = math.pi / 2 * np.linspace(0, 1, 20_001) ** 3
    density = np.sin(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(angles))])
    return float(math.sqrt(freedom) / np.tan(np.interp(0.05, mass / mass[-1], angles)))


def difference_interval(first: float, second: float, of_first: Interval, of_second: Interval) -> Interval:
    """Interval of first − second from the intervals of two independent estimates (Zou & Donner 2008).

    low = first − second − √((first − low₁)² + (high₂ − second)²), and the other way round.
    """
    if of_first is None or of_second is None:
        return None
    below = math.hypot(first - of_first[0], of_second[1] - second)
    above = math.hypot(of_first[1] - first, second - of_second[0])
    return first - second - below, first - second + above
