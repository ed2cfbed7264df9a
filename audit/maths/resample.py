"""Bootstrap of anything that is a function of means over samples.

A resample is a count per sample, so the means of all columns under many resamples are one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEVELS = (2.5, 97.5)
DRAWN = 1 << 16  # counts drawn at once: few enough to be counted inside the processor's cache
MULTIPLIED = 1 << 18  # counts multiplied at once
KEPT = 1 << 25  # counts (a byte each) up to which they are kept for the next measure of the same samples


def resampled_means(columns: Array, draws: int, seed: int) -> Array:
    """Means of each column under `draws` resamples with replacement; columns [n, k] → [draws, k]."""
    means = [counts @ columns for counts in _counts(len(columns), draws, seed)]
    return np.concatenate(means) / len(columns) if means else np.empty((0, columns.shape[1]))


def interval(draws: Array) -> tuple[float, float] | None:
    """The 95 % percentile interval of the finite draws; None where there are none."""
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return None
    lower, upper = np.percentile(finite, LEVELS)
    return float(lower), float(upper)


class Resampled:
    """Named per-sample columns, their means, and the intervals of functions of these means."""

    def __init__(self, columns: Mapping[Any, Array], draws: int, seed: int) -> None:
        stacked = np.stack([np.asarray(column, dtype=np.float64) for column in columns.values()], 1)
        scale = np.maximum(np.abs(stacked).max(0), np.finfo(np.float64).tiny)
        self._place = {name: place for place, name in enumerate(columns)}
        self._mean = stacked.mean(0)
        self._draws = resampled_means(stacked / scale, draws, seed) * scale

    def value(self, function: Callable[..., Array], *names: Hashable) -> float:
        """`function` of the means of the named columns."""
        return float(function(*(self._mean[self._place[name]] for name in names)))

    def ci95(self, function: Callable[..., Array], *names: Hashable) -> tuple[float, float] | None:
        """Its 95 % bootstrap interval over samples."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return interval(function(*(self._draws[:, self._place[name]] for name in names)))


def _counts(n: int, draws: int, seed: int) -> Iterator[Array]:
    """How often each of n samples is drawn, in `draws` resamples: blocks of [some draws, n]."""
    if n * draws > KEPT:
        yield from (counts.astype(np.float64) for counts in _drawn(n, draws, seed))
        return
    rows, kept = max(1, MULTIPLIED // n), _kept_counts(n, draws, seed)
    yield from (kept[start : start + rows].astype(np.float64) for start in range(0, draws, rows))


@lru_cache(maxsize=3)
def _kept_counts(n: int, draws: int, seed: int) -> NDArray[np.uint8]:
    """All counts [draws, n]: most measures resample the same train samples under the same seed."""
    return np.concatenate([*_drawn(n, draws, seed), np.empty((0, n), np.uint8)])


def _drawn(n: int, draws: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Counts [some draws, n]; one above 255 does not happen, their mean is 1."""
    rng, rows = np.random.default_rng(seed), max(1, DRAWN // n)
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        picks = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(picks.ravel(), minlength=size * n).reshape(size, n).astype(np.uint8)
