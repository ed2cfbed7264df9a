"""The answers of twins in plain loops, after the formulas alone."""

from __future__ import annotations

import math

from scipy import stats


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def deviation(values: list[float]) -> float:
    return math.sqrt(sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1))


def prediction_interval(values: list[float]) -> tuple[float, float]:
    """Mean ± t s √(1 + 1/K)."""
    K = len(values)
    half = stats.t.ppf(0.975, K - 1) * deviation(values) * math.sqrt(1 + 1 / K)
    return mean(values) - half, mean(values) + half


def shrunken_covariance(points: list[list[float]], kinds: list[int], floor: float) -> list[list[float]]:
    """Pooled within kinds; correlations times 1 − λ, λ = Σ Var(r_ij) / Σ r_ij² (Schäfer & Strimmer 2005, Eq. 7)."""
    d, n, groups = len(points[0]), len(points), sorted(set(kinds))
    centre = {
        k: [mean([p[i] for p, own in zip(points, kinds, strict=True) if own == k]) for i in range(d)] for k in groups
    }
    residuals = [[p[i] - centre[k][i] for i in range(d)] for p, k in zip(points, kinds, strict=True)]
    freedom = n - len(groups)
    scale = [math.sqrt(sum(r[i] ** 2 for r in residuals) / freedom + floor**2) for i in range(d)]
    z = [[r[i] / scale[i] for i in range(d)] for r in residuals]
    R, noise, size = [[1.0] * d for _ in range(d)], 0.0, 0.0
    for i in range(d):
        for j in range(d):
            if i != j:
                products = [row[i] * row[j] for row in z]
                R[i][j] = sum(products) / freedom
                noise += sum((w - mean(products)) ** 2 for w in products) / freedom**2
                size += R[i][j] ** 2
    shrink = min(1.0, max(0.05, noise / size))
    return [[(R[i][j] * (1.0 if i == j else 1 - shrink)) * scale[i] * scale[j] for j in range(d)] for i in range(d)]


def effect(wrong: list[list[float]], plain: list[list[float]]) -> tuple[float, float]:
    """Difference of mean errors, and its standard error: over twins of both kinds, and over test samples."""
    of_twins = [deviation([mean(row) for row in part]) ** 2 / len(part) for part in (wrong, plain)]
    tests = range(len(wrong[0]))
    apart = [mean([row[t] for row in wrong]) - mean([row[t] for row in plain]) for t in tests]
    return mean(apart), math.sqrt(sum(of_twins) + deviation(apart) ** 2 / len(apart))
