"""The 95 % interval of a mean over samples: of the differences d_i = new − old of two models on the same samples.

Losses have heavy tails: a few samples that one model gets confidently wrong make up most of the mean. The interval is
the wider, on each side, of

  the typical values of random halves (Hartigan 1969): each sample is in a half with probability ½; the interval reaches
    from the 2.5th to the 97.5th percentile of the halves' means. It excludes 0 exactly where the permutation test that
    exchanges the two models' losses on random samples rejects, so with exchangeable models at most 5 % of comparisons
    exclude it, whatever the tails;
  Student's interval (1908): mean ± t s/√n, which is the wider one where samples are few;
  Hall's transformation (1992), which undoes the skewness of the mean: with γ that of the samples, the bounds are
    mean − s · 3/γ (∛(1 + γ (± t/√n − γ/(6n))) − 1). It is the wider one on the side of the long tail.

No interval can know of failures that are not among the samples. Measured where two models are *not* exchangeable and
the true mean is 0, share of intervals that exclude it (nominal 5 %), in brackets without Hall's part:

  lognormal differences, σ = 1.5:      11 % at n = 20 (25 %), 9 % at 50 (18 %), 7 % at 200 (13 %), 5 % at 1000 (9 %);
  1 % of the samples cost 5, the       82 % at n = 20 (85 %), 58 % at 50 (58 %), 12 % at 200 (15 %), 1 % at 1000 (7 %).
    others gain 0.05:

Below 200 samples, and where a handful of them carry the difference, a comparison says so in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from audit.maths import Interval
from audit.maths.blocks import CACHED_GATHER, blocks

if TYPE_CHECKING:  # comparisons never wake torch
    from torch import Tensor

Array = NDArray[np.float64]
Values = TypeVar("Values", NDArray[np.float64], "Tensor")
HALVES = 3999  # random halves: 2.5 % of 4000 is a whole number of them
LEVEL = 0.05  # share of intervals that may miss the truth, unless told otherwise
SEED = 0


def mean_interval(values: Array, level: float = LEVEL) -> Interval:
    """The interval of the mean of values [n] that misses it in a share `level` of cases; None for a single sample.

    >>> low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0] * 10))
    >>> low < 2.5 < high
    True
    """
    if len(values) < 2:
        return None
    every = [bounds(values, level) for bounds in (halves_bounds, student_bounds, hall_bounds)]
    return min(low for low, _ in every), max(high for _, high in every)


def halves_bounds(values: Array, level: float = LEVEL) -> tuple[float, float]:
    """Hartigan's bounds: order statistics of the halves' means, the outermost ones where the level asks for more."""
    means = np.sort(np.concatenate(list(_means_of_halves(values))))
    tail = max(1, math.floor(level / 2 * (HALVES + 1) + 1e-9))
    return float(means[tail - 1]), float(means[-tail])


def _means_of_halves(values: Array) -> Iterator[Array]:
    """Means [some halves] of the samples in each half."""
    rng, n = np.random.default_rng(SEED), len(values)
    for part in blocks(HALVES, n, CACHED_GATHER):
        members = rng.integers(0, 2, size=(part.stop - part.start, n), dtype=np.uint8).astype(np.float64)
        members[members.sum(1) == 0] = 1.0  # a half without members has no mean; it happens with a handful of samples
        yield members @ values / members.sum(1)


def standard_error(values: Values, ddof: int = 0) -> Values:
    """Of the mean of values [n], or of each column of [n, k], numpy's or torch's: √(variance/n).

    >>> float(standard_error(np.array([1.0, 3.0, 1.0, 3.0])))
    0.5
    """
    centred = values - values.mean(0)
    return mean_error((centred * centred).mean(0), len(values) - ddof)


def mean_error(variance: Values, n: int) -> Values:
    """Standard error of a mean of n samples with this variance."""
    error: Values = variance**0.5 / n**0.5  # in this order, since a tiny variance would be lost by the division
    return error


def student_bounds(values: Array, level: float = LEVEL) -> tuple[float, float]:
    """Student's bounds on the mean of values [n]: mean ± t s/√n."""
    mean, n = float(values.mean()), len(values)
    half = student_quantile(n - 1, level / 2) * float(standard_error(values, ddof=1))
    return mean - half, mean + half


def hall_bounds(values: Array, level: float = LEVEL) -> tuple[float, float]:
    """Hall's bounds; Student's where the samples are all alike."""
    mean, spread, n = float(values.mean()), float(values.std(ddof=1)), len(values)
    if spread == 0:
        return mean, mean
    skew = float((((values - mean) / spread) ** 3).mean())
    t = student_quantile(n - 1, level / 2) / math.sqrt(n)
    return mean - spread * _unskewed(t, skew, n), mean - spread * _unskewed(-t, skew, n)


def _unskewed(t: float, skew: float, n: int) -> float:
    """Hall's transformation turned round; its series where the skewness is too small for the cube root."""
    y = t - skew / (6 * n)
    return y - skew * y * y / 3 if abs(skew) < 1e-4 else 3 / skew * (float(np.cbrt(1 + skew * y)) - 1)


def normal_quantile(tail: float) -> float:
    """The value that a standard normal exceeds with probability `tail`."""
    return -NormalDist().inv_cdf(tail)


@cache
def student_quantile(freedom: float, tail: float = LEVEL / 2) -> float:
    """The value that Student's t with ν ≥ 1 degrees of freedom exceeds with probability `tail`.

    With t = √ν / tan ψ the density is sin^{ν−1} ψ on (0, π), summed up here on points that crowd at 0; for large ν the
    expansion around the normal percentile z (Abramowitz & Stegun 26.7.5).

    >>> round(student_quantile(1), 3), round(student_quantile(10), 4), round(student_quantile(1e6), 4)
    (12.706, 2.2281, 1.96)
    """
    if freedom > 100:
        z = normal_quantile(tail)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    angles, mass = _student_angles(freedom)
    return float(math.sqrt(freedom) / np.tan(np.interp(2 * tail, mass, angles)))


def student_share_below(t: float, freedom: float) -> float:
    """The probability that Student's t with ν ≥ 1 degrees of freedom lies below `t`.

    >>> round(student_share_below(2.2281, 10), 4), student_share_below(0.0, 5)
    (0.975, 0.5)
    """
    angles, mass = _student_angles(freedom)
    tail = 0.5 * float(np.interp(math.atan2(math.sqrt(freedom), abs(t)), angles, mass))
    return 1 - tail if t > 0 else tail


@cache
def _student_angles(freedom: float) -> tuple[Array, Array]:
    """Angles ψ in (0, π/2] and the share of sin^{ν−1} that lies below them."""
    angles = math.pi / 2 * np.linspace(0, 1, 20_001) ** 3
    density = np.sin(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(angles))])
    return angles, mass / mass[-1]


def predicted(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Where one more value will lie, as it is foretold from these [K ≥ 2].

    >>> low, high = predicted([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-2.97, 6.97)
    """
    found, K = np.asarray(values, dtype=np.float64), len(values)
    half = student_quantile(K - 1, level / 2) * float(found.std(ddof=1)) * math.sqrt(1 + 1 / K)
    return float(found.mean()) - half, float(found.mean()) + half


def percentile(values: Sequence[float], value: float) -> float:
    """The share of further values that would lie below `value`, as these [K ≥ 2] foretell.

    >>> percentile([1.0, 2.0, 3.0], 2.0), percentile([1.0, 1.0], 2.0)
    (0.5, 1.0)
    """
    found, K = np.asarray(values, dtype=np.float64), len(values)
    spread = float(found.std(ddof=1)) * math.sqrt(1 + 1 / K)
    from_mean = value - float(found.mean())
    if spread <= 1e-12 * max(1.0, abs(value)):
        return 0.5 if abs(from_mean) <= 1e-12 * max(1.0, abs(value)) else float(from_mean > 0)
    return student_share_below(from_mean / spread, K - 1)


# Two models, the same n samples, right or wrong: the 95 % interval of the difference of their shares of wrong answers.
# Only samples on which they disagree tell them apart: b that only the new model gets wrong, c that only the old one
# does.
# Δ = (b − c)/n. The interval is the wider, on each side, of
#   the score interval (Tango 1998): all Δ with |b − c − nΔ| ≤ z √(n (2 q + Δ (1 − Δ))), where q, the share of samples
#     that only the old model gets wrong, takes its most likely value under that Δ;
#   the exact one (Clopper & Pearson 1934): b given b + c is binomial with share θ; its bounds on θ become bounds on Δ.
# The second excludes 0 exactly where McNemar's exact test (1947) rejects at 5 %: with no true difference at most 5 % of
# comparisons exclude it, however few samples disagree. The first keeps its coverage where the true difference is large.


Flags = NDArray[np.float64]


def share_interval(old_wrong: Flags, new_wrong: Flags, level: float = LEVEL) -> tuple[float, float]:
    """Interval of new minus old share of wrong answers, of flags [n] that are 0 or 1 on the same n samples.

    It misses the true difference in at most a share `level` of cases.

    >>> low, high = share_interval(np.zeros(50), np.repeat([0.0, 1.0], 25))
    >>> 0.3 < low < 0.5 < high < 0.7
    True
    """
    n = len(old_wrong)
    b, c = int((new_wrong > old_wrong).sum()), int((old_wrong > new_wrong).sum())
    score, exact = score_bounds(b, c, n, level), exact_bounds(b, c, n, level)
    return min(score[0], exact[0]), max(score[1], exact[1])


def mcnemar(b: int, c: int) -> float:
    """Two-sided p-value of McNemar's exact test: twice the smaller binomial tail.

    >>> round(mcnemar(8, 0), 9), mcnemar(3, 3)
    (0.0078125, 1.0)
    """
    return min(1.0, 2 * _upper_tail(max(b, c), b + c, 0.5))


def score_bounds(b: float, c: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Tango's interval; its lower bound is minus the upper one of the two models exchanged."""
    z = normal_quantile(level / 2)
    return -_score_upper(c, b, n, z), _score_upper(b, c, n, z)


def _score_upper(b: float, c: float, n: int, z: float) -> float:
    return border(lambda delta: n * delta - (b - c) > z * _spread(b, c, n, delta), (b - c) / n, 1.0)


def _spread(b: float, c: float, n: int, delta: float) -> float:
    """√(n (2 q + Δ (1 − Δ))) with q the most likely share under Δ: 2n q² + B q + C = 0."""
    B, C = -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
    q = (math.sqrt(max(0.0, B * B - 8 * n * C)) - B) / (4 * n)
    return math.sqrt(max(0.0, n * (2 * q + delta * (1 - delta))))


def exact_bounds(b: int, c: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's interval of θ, as bounds on Δ = (2θ − 1)(b + c)/n."""
    m = b + c
    low = 0.0 if b == 0 else border(lambda theta: _upper_tail(b, m, theta) < level / 2, 1.0, 0.0)
    high = 1.0 if c == 0 else border(lambda theta: _upper_tail(c, m, 1 - theta) < level / 2, 0.0, 1.0)
    return (2 * low - 1) * m / n, (2 * high - 1) * m / n


def border(excluded: Callable[[float], bool], inside: float, outside: float) -> float:
    """The border between values that are not excluded and those that are, by halving."""
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if excluded(middle) else (middle, outside)
    return outside


def _upper_tail(k: int, m: int, theta: float) -> float:
    """P(X ≥ k) of a binomial with m trials."""
    if k <= 0:
        return 1.0
    if not 0 < theta < 1:
        return float(theta >= 1)
    trials = np.arange(k, m + 1)
    logs = _log_choose(m)[k:] + trials * math.log(theta) + (m - trials) * math.log1p(-theta)
    return float(np.exp(logs).sum())


def _log_choose(m: int) -> NDArray[np.float64]:
    """Logarithms of the binomial coefficients [m + 1]."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, m + 1)))])
    return np.asarray(factorials[m] - factorials - factorials[::-1])
