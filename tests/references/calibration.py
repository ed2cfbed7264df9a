"""Calibration the slow way: python loops over samples, bins and draws, plain floats."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

Bin = list[int]  # places of its samples


def softmax(scores: Sequence[float]) -> list[float]:
    """Of two scores and more; one score f is the pair (0, f)."""
    scores = [0.0, *scores] if len(scores) == 1 else list(scores)
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


def bins(values: Sequence[float], most: int = 10, fewest: int = 20) -> list[Bin]:
    """Equal values together, in the bin that the middle of their ranks falls in."""
    n, wanted = len(values), min(most, max(1, len(values) // fewest))
    found: dict[int, Bin] = {}
    for value in sorted(set(values)):
        below = sum(other < value for other in values)
        own = [place for place, other in enumerate(values) if other == value]
        found.setdefault(math.floor(wanted * (below + len(own) / 2) / n), []).extend(own)
    return [found[key] for key in sorted(found)]


def ece(confidence: Sequence[float], right: Sequence[float], cut: Sequence[Bin]) -> float:
    n = len(confidence)
    return math.fsum(abs(math.fsum(confidence[i] - right[i] for i in own)) / n for own in cut)


def ece_if_calibrated(confidence: Sequence[float], cut: Sequence[Bin], draws: int) -> list[float]:
    """The error of models that are right with the probability that they state, lowest first."""
    rng = random.Random(0)
    return sorted(ece(confidence, [rng.random() < c for c in confidence], cut) for _ in range(draws))


def brier(probabilities: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    rows = zip(probabilities, labels, strict=True)
    return math.fsum((p - (k == y)) ** 2 for row, y in rows for k, p in enumerate(row)) / len(labels)


def loss(scores: Sequence[Sequence[float]], labels: Sequence[int], temperature: float) -> float:
    rows = zip(scores, labels, strict=True)
    return -math.fsum(math.log(softmax([f / temperature for f in row])[y]) for row, y in rows) / len(labels)


def temperature(scores: Sequence[Sequence[float]], labels: Sequence[int], low: float, high: float) -> float:
    """The lowest loss between two temperatures, by ever finer grids."""
    for _ in range(14):
        grid = [low * (high / low) ** (step / 20) for step in range(21)]
        best = min(range(21), key=lambda place: loss(scores, labels, grid[place]))
        low, high = grid[max(0, best - 1)], grid[min(20, best + 1)]
    return math.sqrt(low * high)


def within(errors: Sequence[float], limit: float) -> float:
    return sum(abs(error) <= limit for error in errors) / len(errors)


def size_that_holds(errors: Sequence[float], share: float) -> float:
    """The least size of error that at least this share of them does not exceed."""
    return min(abs(limit) for limit in errors if within(errors, abs(limit)) >= share)
