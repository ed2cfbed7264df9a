"""Which samples are used: stratified by label, seeded, in their stored order, the same on every machine.

Every sample draws one raw 64-bit number and the smallest of each class are taken. Raw draws of a bit generator are
promised never to change between NumPy versions; `Generator.choice` and `shuffle` are not.
"""

from __future__ import annotations

import numpy as np

from audit.data.labels import is_one_hot, is_whole
from audit.data.source import Array, Rows

MOVED = 100  # one sample in so many, at most, may go to classes that their share alone would leave without any


def sample(labels: Array, size: int, seed: int, stream: str, task: str = "auto", *, every_class: bool = False) -> Rows:
    """`size` positions, ascending; each class gets its share of them, rounded up or down, on request at least one."""
    if size >= len(labels):
        return np.arange(len(labels), dtype=np.int64)
    draws = _draws(seed, stream)
    codes, counts = strata(labels, task)
    quota = (apportion_to_all if every_class else apportion)(counts, size, draws.random_raw(len(counts)))
    order = np.lexsort((draws.random_raw(len(labels)), codes))  # class by class, each in its drawn order
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < quota[codes[order]]]).astype(np.int64)


def _draws(seed: int, stream: str) -> np.random.PCG64:
    """Its own stream for each purpose, so that one cap does not shift another."""
    return np.random.PCG64(np.random.SeedSequence([seed % 2**64, *stream.encode()]))


def strata(labels: Array, task: str = "auto") -> tuple[Rows, Rows]:
    """The stratum of each sample and the size of each; one stratum for targets that are not classes."""
    lone = np.zeros(len(labels), np.int64), np.array([len(labels)], np.int64)
    if task == "regression":
        return lone
    if labels.ndim == 2:
        if not is_one_hot(labels):
            return lone
        labels = labels.argmax(1)
    elif labels.dtype.kind == "f" and not is_whole(labels):
        return lone
    values, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if 2 * len(values) > len(labels):  # values that hardly repeat are quantities, not classes
        return lone
    return codes.reshape(-1).astype(np.int64), counts.astype(np.int64)


def apportion(counts: Rows, size: int, ties: Array) -> Rows:
    """Shares of `size` in proportion to `counts`, by largest remainder; `ties` decides between equal remainders."""
    total = int(counts.sum())
    quota, remainder = np.divmod(counts * size, total)
    upwards = np.lexsort((ties, -remainder))[: size - int(quota.sum())]
    quota[upwards] += 1
    return np.asarray(quota, np.int64)


def apportion_to_all(counts: Rows, size: int, ties: Array) -> Rows:
    """As `apportion`, with one for each that would get none; without, where that would move more than 1 % of `size`.

    Beyond that, the losses of rare classes, or of integer targets that are no classes, would weigh too much in a mean.
    """
    proportional = apportion(counts, size, ties)
    quota, lone = proportional, proportional == 0
    while lone.sum() * MOVED <= size:
        quota = np.ones_like(counts)
        quota[~lone] = apportion(counts[~lone], size - int(lone.sum()), ties[~lone])
        if quota.all():
            return quota
        lone |= quota == 0
    return proportional
