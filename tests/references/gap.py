"""The gap the slow way: python loops over samples and draws."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


def cross_entropy(scores: Sequence[float], label: int) -> float:
    top = max(scores)
    return top + math.log(math.fsum(math.exp(score - top) for score in scores)) - scores[label]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def percentile_interval(train: Sequence[float], test: Sequence[float], draws: int) -> tuple[float, float]:
    """Percentile bootstrap of mean(test) − mean(train)."""
    rng = random.Random(0)
    differences = sorted(
        mean(rng.choices(test, k=len(test))) - mean(rng.choices(train, k=len(train))) for _ in range(draws)
    )
    return differences[int(0.025 * draws)], differences[int(0.975 * draws)]
