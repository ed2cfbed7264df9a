"""Bootstrap of anything that is a function of means over samples.

A resample is a count per sample, so the means of all columns under many resamples are one matrix product. Of more than
`RESAMPLED` samples, as many groups of them, put together at random, are drawn: groups of independent samples are
independent, too, and a mean over them varies as much from draw to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.maths.blocks import CACHED, CACHED_PRODUCT, COUNTS, RESAMPLED, TABLE, blocks
from audit.maths.shares import wilson

Array = NDArray[np.float64]
Counts = NDArray[np.uint8]  # [draws, n]  how often each sample is drawn; above 255 it never is, the mean is 1
LEVELS = (2.5, 97.5)
TRAIN, TEST = 0, 1 << 20  # streams that keep the draws of the two splits apart
MANY = 1 << 12  # samples


def resampled_means(columns: Array, draws: int, seed: int) -> Array:
    """Means of each column under `draws` resamples with replacement; columns [n, k] → [draws, k].

    >>> resampled_means(np.ones((5, 2)), draws=3, seed=0)
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """
    if len(columns) > RESAMPLED:
        return _means_of_groups(columns, draws, seed)
    return _means(columns, _drawn(len(columns), draws, seed))


def interval(draws: Array) -> tuple[float, float] | None:
    """The 95 % percentile interval of the finite ones of draws [n]; None where there are none.

    >>> interval(np.arange(1001.0))
    (25.0, 975.0)
    """
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return None
    lower, upper = np.percentile(finite, LEVELS)
    return float(lower), float(upper)


class Bootstrap:
    """The same draws for whoever asks, under one seed.

    Most measures resample the same splits: the counts for as many samples as `keep` says of a stream are drawn once and
    kept, a byte each, unless they are more than `COUNTS`. Whoever makes a bootstrap has them in its memory budget.
    """

    def __init__(self, draws: int, seed: int, keep: Mapping[int, int] | None = None) -> None:
        self.draws, self.seed = draws, seed
        fitting = {stream: n for stream, n in (keep or {}).items() if 0 < n * draws <= COUNTS}
        self._samples = {stream: n for stream, n in fitting.items() if n <= RESAMPLED}
        self._kept: dict[int, Counts] = {}

    @property
    def bytes(self) -> int:
        """What it keeps, once it has been asked."""
        return sum(self._samples.values()) * self.draws

    def means(self, columns: Array, stream: int = TRAIN) -> Array:
        """Means of each column under all draws; columns [n, k] → [draws, k]. Another `stream` has other draws."""
        n, seed = len(columns), self.seed + stream
        if n != self._samples.get(stream):
            return resampled_means(columns, self.draws, seed)
        if stream not in self._kept:
            self._kept[stream] = np.concatenate([*_drawn(n, self.draws, seed), np.empty((0, n), np.uint8)])
        kept = self._kept[stream]
        return _means(columns, (kept[part] for part in blocks(self.draws, n, CACHED_PRODUCT)))


class Resampled:
    """Named per-sample columns [n], their means, and the intervals of functions of these means.

    >>> means = Resampled({"x": np.array([1.0, 3.0]), "y": np.array([2.0, 2.0])}, Bootstrap(100, 0))
    >>> means.value(lambda x, y: x / y, "x", "y"), means.ci95(lambda y: y, "y")
    (1.0, (2.0, 2.0))
    """

    def __init__(self, columns: Mapping[Any, Array], bootstrap: Bootstrap) -> None:
        stacked = np.stack([np.asarray(column, dtype=np.float64) for column in columns.values()], 1)
        scale = np.maximum(np.abs(stacked).max(0), np.finfo(np.float64).tiny)
        self._place = {name: place for place, name in enumerate(columns)}
        self._mean = stacked.mean(0)
        self._draws = bootstrap.means(stacked / scale) * scale

    def value(self, function: Callable[..., Array], *names: Hashable) -> float:
        """`function` of the means of the named columns."""
        return float(function(*(self._mean[self._place[name]] for name in names)))

    def ci95(self, function: Callable[..., Array], *names: Hashable) -> tuple[float, float] | None:
        """Its 95 % bootstrap interval over samples."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return interval(function(*(self._draws[:, self._place[name]] for name in names)))


def _means(columns: Array, counts: Iterable[Counts]) -> Array:
    """[draws, k] of columns [n, k], from blocks of counts [some draws, n]."""
    means = [some.astype(np.float64) @ columns for some in counts]
    return np.concatenate(means) / len(columns) if means else np.empty((0, columns.shape[1]))


def _means_of_groups(columns: Array, draws: int, seed: int) -> Array:
    """[draws, k] of columns [n, k], whose samples are drawn in `RESAMPLED` random groups of as equal a size as can be.

    A draw's mean is Σ_g c_g S_g / Σ_g c_g n_g with the sums S_g [k] and sizes n_g of the groups.
    """
    n, k = columns.shape
    order = np.random.default_rng([seed, n]).permutation(n)
    sums = np.zeros((RESAMPLED, k + 1))
    for part in blocks(n, 1, RESAMPLED):  # the first members of all groups, then the second ones, …
        members = order[part]
        sums[: len(members), :k] += columns[members]
        sums[: len(members), k] += 1
    means = _means(sums, _drawn(RESAMPLED, draws, seed))
    return means[:, :k] / means[:, k:]


def _drawn(n: int, draws: int, seed: int) -> Iterator[Counts]:
    """Counts of n samples in `draws` resamples, in blocks [some draws, n].

    Of many samples a block holds many draws: the threads of a matrix product wait for each other after each block.
    """
    rng = np.random.default_rng(seed)
    for part in blocks(draws, n, TABLE if n > MANY else CACHED):
        counts = np.empty((part.stop - part.start, n), np.uint8)
        for some in blocks(len(counts), n, CACHED):
            size = some.stop - some.start
            picks = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
            counts[some] = np.bincount(picks.ravel(), minlength=size * n).reshape(size, n)
        yield counts


# Means over answers that come in clusters: samples are drawn, never the answers within one.
#
# The positions of one sample are no independent pieces of evidence: a bootstrap over them would be too sure.


Samples = NDArray[np.int64]


def cluster_sums(columns: Array, sample: Samples, samples: int) -> Array:
    """Sums over the answers of each sample; columns [P, k] and sample [P] → [samples, k].

    >>> cluster_sums(np.array([[1.0], [2.0], [5.0]]), np.array([0, 0, 1]), 2)
    array([[3.],
           [5.]])
    """
    sums = np.zeros((samples, columns.shape[1]))
    np.add.at(sums, sample, columns)
    return sums


def cluster_means(columns: Array, sample: Samples, bootstrap: Bootstrap, stream: int = TRAIN) -> Array:
    """Means over answers under all draws of samples, Σ_i c_i S_i / Σ_i c_i m_i: columns [P, k] → [draws, k].

    S_i [k] are the sums of sample i, m_i its answers and c_i how often it is drawn. Every sample has an answer.
    """
    sums = cluster_sums(np.column_stack([columns, np.ones(len(columns))]), sample, int(sample[-1]) + 1)
    means = bootstrap.means(sums, stream)
    return np.asarray(means[:, :-1] / means[:, -1:])


def cluster_share(hits: Array, asked: Array, bootstrap: Bootstrap, stream: int = TRAIN) -> tuple[float, float]:
    """The 95 % interval of Σ hits / Σ asked, of each sample [n], by a bootstrap over samples.

    Where all answers are alike every draw is, too: then it is Wilson's of as many answers as there are samples.
    """
    share = float(hits.sum() / asked.sum())
    if share in (0.0, 1.0):
        return wilson(share, len(hits))
    means = bootstrap.means(np.stack([hits, asked], 1), stream)
    return interval(means[:, 0] / means[:, 1]) or wilson(share, len(hits))
