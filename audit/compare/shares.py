"""Two models, the same n samples, right or wrong: the 95 % interval of the difference of their shares of wrong answers.

Only samples on which they disagree tell them apart: b that only the new model gets wrong, c that only the old one does.
Δ = (b − c)/n. The interval is the wider, on each side, of

  the score interval (Tango 1998): all Δ with |b − c − nΔ| ≤ z √(n (2 q + Δ (1 − Δ))), where q, the share of samples
    that only the old model gets wrong, takes its most likely value under that Δ;
  the exact one (Clopper & Pearson 1934): b given b + c is binomial with share θ; its bounds on θ become bounds on Δ.

The second excludes 0 exactly where McNemar's exact test (1947) rejects at 5 %: with no true difference at most 5 % of
comparisons exclude it, however few samples disagree. The first keeps its coverage where the true difference is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from audit.compare.means import LEVEL, normal_quantile

Flags = NDArray[np.float64]


def share_interval(old_wrong: Flags, new_wrong: Flags, level: float = LEVEL) -> tuple[float, float]:
    """Interval of new minus old that misses at most a share `level` of the time; both [n], 0 or 1."""
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


def score_bounds(b: int, c: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Tango's interval; its lower bound is minus the upper one of the two models exchanged."""
    z = normal_quantile(level / 2)
    return -_score_upper(c, b, n, z), _score_upper(b, c, n, z)


def _score_upper(b: int, c: int, n: int, z: float) -> float:
    return _crossing(lambda delta: n * delta - (b - c) > z * _spread(b, c, n, delta), (b - c) / n, 1.0)


def _spread(b: int, c: int, n: int, delta: float) -> float:
    """√(n (2 q + Δ (1 − Δ))) with q the most likely share under Δ: 2n q² + B q + C = 0."""
    B, C = -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
    q = (math.sqrt(max(0.0, B * B - 8 * n * C)) - B) / (4 * n)
    return math.sqrt(max(0.0, n * (2 * q + delta * (1 - delta))))


def exact_bounds(b: int, c: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's interval of θ, as bounds on Δ = (2θ − 1)(b + c)/n."""
    m = b + c
    low = 0.0 if b == 0 else _crossing(lambda theta: _upper_tail(b, m, theta) < level / 2, 1.0, 0.0)
    high = 1.0 if c == 0 else _crossing(lambda theta: _upper_tail(c, m, 1 - theta) < level / 2, 0.0, 1.0)
    return (2 * low - 1) * m / n, (2 * high - 1) * m / n


def _crossing(excluded: Callable[[float], bool], inside: float, outside: float) -> float:
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
