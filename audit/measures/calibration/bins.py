"""Bins of about equally many samples, by a value of each sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.int64]
MOST = 10  # bins
FEWEST = 20  # samples of a bin: with fewer, its share of right answers says little
DIGITS = 9  # of the largest value: what agrees in them is equal but for rounding


def equal_count_bins(values: Array) -> Places:
    """The bin of each of n values [n]: 0, 1, …, lowest values first, none empty, whatever the order of the samples.

    Equal values share a bin, the one in which the middle of their ranks falls: a bin may hold more than its part.

    >>> equal_count_bins(np.array([0.9, 0.5] * 20)).tolist()[:4]
    [1, 0, 1, 0]
    >>> np.bincount(equal_count_bins(np.array([1.0] * 50 + [0.2, 0.3] * 25))).tolist()
    [25, 25, 50]
    """
    n, wanted = len(values), min(MOST, max(1, len(values) // FEWEST))
    size = float(np.abs(values).max()) or 1.0
    _, group, counts = np.unique(np.round(values / size, DIGITS), return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2  # of each group's ranks, from 0 to n
    _, bins = np.unique((wanted * middle / n).astype(np.int64)[group], return_inverse=True)
    return bins.astype(np.int64)


def members(bins: Places) -> Array:
    """Which samples each bin holds [n, B], 0 or 1."""
    held: Array = (bins[:, None] == np.arange(bins.max() + 1)).astype(np.float64)
    return held
