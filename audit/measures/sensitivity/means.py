"""Means of per-sample columns, of logarithms and of volumes, each with its bootstrap interval.

All columns are resampled in one go, so they are named at the start; a number is then asked for by the column itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from audit.maths.resample import Resampled
from audit.measures.sensitivity.columns import Array
from audit.report.fields import Interval

Estimate = tuple[float, Interval]
Maybe = tuple[float | None, Interval]  # None: no sample has such a number
NOTHING: Maybe = (None, None)


class Means:
    """`plain` columns have a number for every sample; those of `partial` ones are −inf or nan for some."""

    def __init__(self, plain: Sequence[Array], partial: Sequence[Array], draws: int, seed: int) -> None:
        table: dict[tuple[int, str], Array] = {(id(column), ""): column for column in plain}
        self._tops = {id(column): _top(column) for column in partial}
        for column in partial:
            exists = np.isfinite(column)
            table[id(column), "exists"] = exists.astype(np.float64)
            table[id(column), "value"] = np.where(exists, column, 0.0)
            table[id(column), "volume"] = self._volumes(column)
        self._table = Resampled(table, draws, seed)

    def mean(self, column: Array) -> Estimate:
        """Of a plain column."""
        return self.of(lambda values: values, column)

    def of(self, function: Callable[..., Array], *columns: Array) -> Estimate:
        """A function of several plain columns' means."""
        return self._of(function, *((id(column), "") for column in columns))

    def mean_where_any(self, column: Array) -> Maybe:
        """Of a partial column, over the samples that have a number."""
        if not np.isfinite(self._tops[id(column)]):
            return NOTHING
        return self._of(np.divide, (id(column), "value"), (id(column), "exists"))

    def log_mean(self, *columns: Array) -> Maybe:
        """Logarithm of the sum over columns of logarithms of their mean volumes; −inf counts as volume 0."""
        present = [id(column) for column in columns if np.isfinite(self._tops[id(column)])]
        if not present:
            return NOTHING
        top = max(self._tops[place] for place in present)
        scales = [np.exp(self._tops[place] - top) for place in present]

        def total(*means: Array) -> Array:
            summed: Array = top + np.log(sum(scale * mean for scale, mean in zip(scales, means, strict=True)))
            return summed

        return self._of(total, *((place, "volume") for place in present))

    def _of(self, function: Callable[..., Array], *keys: tuple[int, str]) -> Estimate:
        return self._table.value(function, *keys), self._table.ci95(function, *keys)

    def _volumes(self, logs: Array) -> Array:
        """Volumes in units of the largest, so that none leaves the range of numbers."""
        top, exists = self._tops[id(logs)], np.isfinite(logs)
        return np.where(exists, np.exp(np.where(exists, logs - top if np.isfinite(top) else 0.0, 0.0)), 0.0)


def _top(column: Array) -> float:
    """The largest number; −inf where there is none."""
    return float(column[np.isfinite(column)].max(initial=-np.inf))
