"""Data hygiene the slow way: python loops over pairs of samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import product

import numpy as np

Row = tuple[float, ...]


def duplicates(train: Sequence[Row], test: Sequence[Row]) -> tuple[int, int, int]:
    """Test samples in train; repeats within train; repeats within test."""
    across = sum(any(row == other for other in train) for row in test)
    within = [sum(row in split[:place] for place, row in enumerate(split)) for split in (train, test)]
    return across, within[0], within[1]


def conflicts(
    train: Sequence[Row], labels: Sequence[Hashable], test: Sequence[Row], test_labels: Sequence[Hashable]
) -> tuple[int, int]:
    """Train and test samples whose input is in train with another label."""
    pairs = list(zip(train, labels, strict=True))

    def contradicted(row: Row, label: Hashable) -> bool:
        return any(row == other and label != given for other, given in pairs)

    return (
        sum(contradicted(*pair) for pair in pairs),
        sum(contradicted(*pair) for pair in zip(test, test_labels, strict=True)),
    )


def standardise(train: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Every feature less its train mean, over its train deviation where that is not zero."""
    means = [math.fsum(column) / len(train) for column in zip(*train, strict=True)]
    deviations = [
        math.sqrt(math.fsum((value - mean) ** 2 for value in column) / len(train)) or 1.0
        for column, mean in zip(zip(*train, strict=True), means, strict=True)
    ]
    return [tuple((v - m) / d for v, m, d in zip(row, means, deviations, strict=True)) for row in rows]


def votes(row: Row, others: Sequence[tuple[Row, int]], k: int = 10) -> dict[int, float]:
    """Shares of the labels among the k nearest of `others` and those no farther (to 1e-9) than the k-th."""
    distances = [(math.dist(row, other), label) for other, label in others]
    radius = sorted(distance for distance, _ in distances)[:k][-1]
    counted = Counter(label for distance, label in distances if distance <= radius * (1 + 1e-9) + 1e-12)
    return {label: count / counted.total() for label, count in counted.items()}


def outvoted(shares: dict[int, float], label: int) -> float:
    """1 where another label has more votes, ½ where one has as many."""
    own = shares.get(label, 0.0)
    top = max((share for other, share in shares.items() if other != label), default=0.0)
    return 1.0 if top > own else 0.5 if top == own else 0.0


def suspect(shares: dict[int, float], label: int) -> bool:
    own = shares.get(label, 0.0)
    top = max((share for other, share in shares.items() if other != label), default=0.0)
    return top >= 0.5 and top >= 4 * own


def near_ratios(train: Sequence[Row], test: Sequence[Row], k: int = 10) -> tuple[list[float], float]:
    """r₁/r_k of each test sample that is not in train, and the dimension from the outer half of the distances."""
    distinct = list(dict.fromkeys(train))
    k = min(k, len(distinct))
    radii = [sorted(math.dist(row, other) for other in distinct)[:k] for row in test if row not in distinct]
    j = (k + 1) // 2
    spread = math.fsum(math.log(r[-1] / r[j - 1]) for r in radii) / len(radii)
    return [r[0] / r[-1] for r in radii], math.fsum(1 / i for i in range(j, k)) / spread


def exact_p_value(train: Sequence[int], test: Sequence[int]) -> float:
    """Probability, over all divisions of the pooled counts, of an X² at least as large as the observed one."""
    pooled = [a + b for a, b in zip(train, test, strict=True)]
    size, total = sum(test), sum(pooled)

    def x_squared(drawn: Sequence[int]) -> float:
        return math.fsum(
            (share * count - found) ** 2 / (share * count)
            for count, in_test in zip(pooled, drawn, strict=True)
            for found, share in ((in_test, size / total), (count - in_test, 1 - size / total))
        )

    observed = x_squared(test)
    ways = 0
    for drawn in product(*(range(count + 1) for count in pooled)):
        if sum(drawn) == size and x_squared(drawn) >= observed * (1 - 1e-12):
            ways += math.prod(math.comb(count, taken) for count, taken in zip(pooled, drawn, strict=True))
    return ways / math.comb(total, size)


def told_rightly(rows: Sequence[Row], from_test: Sequence[bool], ridge: float) -> list[bool]:
    """Whether each row is told rightly by a kernel ridge regression that is solved anew without that row."""
    kernel = [
        [(a + b) / 2 for a, b in zip(*pair, strict=True)]
        for pair in zip(_gaussian(rows), _gaussian(_scaled(rows)), strict=True)
    ]
    part = sum(from_test) / len(from_test)
    y = np.array([2 * (one - part) for one in from_test])
    found = []
    for place in range(len(rows)):
        rest = [other for other in range(len(rows)) if other != place]
        K = np.array([[kernel[a][b] for b in rest] for a in rest])
        answer = np.array([kernel[place][b] for b in rest]) @ np.linalg.solve(K + ridge * np.eye(len(rest)), y[rest])
        found.append(bool(answer > 0) == from_test[place])
    return found


def _gaussian(rows: Sequence[Row]) -> list[list[float]]:
    """exp(−d²/median d²); of an even number of distances, the lower of the middle two."""
    squared = [[math.dist(a, b) ** 2 for b in rows] for a in rows]
    others = sorted(squared[a][b] for a in range(len(rows)) for b in range(len(rows)) if a != b)
    middle = others[(len(others) - 1) // 2]
    return [[math.exp(-value / middle) for value in row] for row in squared]


def _scaled(rows: Sequence[Row]) -> list[Row]:
    """Every feature in units of its deviation over all rows; where it is constant it does not matter."""
    columns = list(zip(*rows, strict=True))
    deviations = [float(np.std(column, ddof=1)) or 1.0 for column in columns]
    return [tuple(value / deviation for value, deviation in zip(row, deviations, strict=True)) for row in rows]
