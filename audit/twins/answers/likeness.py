"""Which kind of twins does the model resemble, and how well can that be told here?

A linear discriminant on the logarithms of the inner numbers, never on the test error: twins of a kind spread around its
mean with one covariance for all kinds, shrunk towards its diagonal as far as so few twins ask for (Schäfer & Strimmer
2005). Each twin is diagnosed by all others, and what comes out right is the hit rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.intervals import student_quantile
from audit.maths.shares import wilson
from audit.report.twins import Likeness
from audit.twins.answers.bands import LOGARITHMS
from audit.twins.index import Twin, TwinSet

LEAST = 3  # twins of a kind that can be resembled
FLOOR = 0.02  # of a logarithm: twins spread at least so much
FAR = 0.005  # share of twins that would lie as far from their own kind
SURE = 0.5  # probability below which no kind is named
TINY = 1e-12

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Discriminant:
    """The kinds' means and the one spread around them."""

    means: Array  # [kinds, d]
    inverse: Array  # [d, d] of the covariance within kinds

    @classmethod
    def of(cls, X: Array, kinds: NDArray[np.int64], count: int) -> Discriminant:
        """From twins X [n, d] of these kinds [n]."""
        means = np.stack([X[kinds == k].mean(0) for k in range(count)])
        return cls(means, np.asarray(np.linalg.inv(_within(X - means[kinds], len(X) - count)), np.float64))

    def distances(self, x: Array) -> Array:
        """Squared distance of x [d] from each kind [kinds], in units of the spread."""
        away = x - self.means
        return np.asarray(np.einsum("ki,ij,kj->k", away, self.inverse, away))


def likeness(twins: TwinSet) -> Likeness:
    """The model's diagnosis."""
    names, measured = _kinds(twins)
    if len(names) < 2:
        return Likeness(kind=None, family=twins.family, skipped="fewer than two kinds of twins were measured")
    keys = [key for key in twins.model if all(key in twin.numbers for twin in measured)]
    X = np.array([_point(twin.numbers, keys) for twin in measured])
    y = np.array([names.index(twin.kind) for twin in measured])
    own = np.array(_point(twins.model, keys))
    told, apart = _by_the_others(X, y, len(names))
    discriminant = Discriminant.of(X, y, len(names))
    distances = discriminant.distances(own)
    order, chances = np.argsort(distances, kind="stable"), _chances(distances, X.shape[1])
    first, far = int(order[0]), bool(math.log(distances.min() + TINY) > _farthest(apart))
    hits, called = told == y, told == first
    among = not far or (not twins.recipe_given and distances[first] < _to_next(discriminant, first))
    sure = among and chances[first] >= SURE
    return Likeness(
        kind=names[first] if sure else None,
        family=twins.family,
        next=names[int(order[1])],
        sureness=float(chances[first]),
        far=far,
        hit_rate=float(hits.mean()),
        hit_rate_ci95=wilson(float(hits.mean()), len(hits)),
        hit_rate_of_kind=float(hits[called].mean()) if called.any() else None,
        kinds=list(names),
        confusion=[[int(((y == k) & (told == j)).sum()) for j in range(len(names))] for k in range(len(names))],
    )


def _kinds(twins: TwinSet) -> tuple[list[str], list[Twin]]:
    """Kinds with enough measured twins, in the order in which they were made, and those twins."""
    by_kind: dict[str, list[Twin]] = {}
    for twin in twins.twins:
        if twin.numbers and twin.family == twins.family:
            by_kind.setdefault(twin.kind, []).append(twin)
    enough = {name: members for name, members in by_kind.items() if len(members) >= LEAST}
    return list(enough), [twin for members in enough.values() for twin in members]


def _point(numbers: dict[str, float], keys: Sequence[str]) -> list[float]:
    """Logarithms of sizes; shares and what is a logarithm already as they are."""
    return [
        numbers[key] if any(part in key for part in LOGARITHMS) else math.log(max(abs(numbers[key]), TINY))
        for key in keys
    ]


def _within(residuals: Array, freedom: int) -> Array:
    """The covariance of residuals [n, d], its correlations shrunk towards none."""
    n = len(residuals)
    deviation = np.sqrt(np.square(residuals).sum(0) / max(1, freedom) + FLOOR**2)
    Z = residuals / deviation
    products = Z[:, :, None] * Z[:, None, :]  # [n, d, d]
    R, spread = products.sum(0) / max(1, freedom), products.var(0) * n / max(1, freedom) ** 2
    off = ~np.eye(len(R), dtype=bool)
    total = float(np.square(R[off]).sum())
    shrink = 1.0 if total <= 0 else min(1.0, max(0.05, float(spread[off].sum()) / total))
    R = np.where(off, (1 - shrink) * R, 1.0)
    return np.asarray(R * np.outer(deviation, deviation))


def _by_the_others(X: Array, y: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], Array]:
    """Of each twin the kind that all others tell [n], and the squared distance from its own kind's others [n]."""
    told, apart = np.empty(len(y), np.int64), np.empty(len(y))
    for place in range(len(y)):
        rest = np.arange(len(y)) != place
        found = Discriminant.of(X[rest], y[rest], count).distances(X[place])
        told[place], apart[place] = int(found.argmin()), found[y[place]]
    return told, apart


def _to_next(found: Discriminant, kind: int) -> float:
    """Squared distance between a kind and the one next to it: an inferred recipe may bring the model away by less."""
    return float(np.delete(found.distances(found.means[kind]), kind).min())


def _farthest(apart: Array) -> float:
    """The logarithm of the squared distance beyond which a twin would hardly lie from its own kind."""
    logs = np.log(apart + TINY)
    t = student_quantile(len(logs) - 1, FAR)
    return float(logs.mean() + t * logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))


def _chances(distances: Array, d: int) -> Array:
    """Probability of each kind, all equally likely before; of heavy tails, since the spread is known from few twins."""
    exponent = np.log1p(distances / d) * -(d + 1) / 2
    weights = np.exp(exponent - exponent.max())
    return np.asarray(weights / weights.sum())
