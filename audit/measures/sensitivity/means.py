"""Means of per-sample columns, of logarithms and of volumes, each with its bootstrap interval.

All columns are resampled in one go, so they are named at the start; a number is then asked for by the column's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from audit.maths.resample import Bootstrap, Resampled
from audit.measures.sensitivity.columns import Array, LayerColumns
from audit.report.fields import Interval

Name = tuple[str, ...]
Maybe = tuple[float | None, Interval]  # None: no sample has such a number
NOTHING: Maybe = (None, None)
THETA, ADAPTIVE, TRACE = ("network", "theta"), ("network", "adaptive"), ("network", "trace")
CENTRED = ("input", "log_volume_centred")


def of_input(quantity: str) -> Name:
    """A column of the map from the input to the scores."""
    return "input", quantity


def of_layer(layer: LayerColumns, quantity: str) -> Name:
    """A column of one layer."""
    return "layer", layer.layer.name, quantity


class Means:
    """`plain` columns have a number for every sample; those of `partial` ones are −inf or nan for some."""

    def __init__(self, plain: Mapping[Name, Array], partial: Mapping[Name, Array], bootstrap: Bootstrap) -> None:
        self._tops = {name: _top(column) for name, column in partial.items()}
        table = dict(plain)
        for name, column in partial.items():
            exists = np.isfinite(column)
            table |= {
                (*name, "exists"): exists.astype(np.float64),
                (*name, "value"): np.where(exists, column, 0.0),
                (*name, "volume"): _volumes(column, self._tops[name]),
            }
        self._names, self._table = table.keys() | set(), Resampled(table, bootstrap)

    def mean(self, name: Name) -> Maybe:
        """Of a plain column."""
        return self.of(lambda values: values, name)

    def of(self, function: Callable[..., Array], *names: Name) -> Maybe:
        """A function of several columns' means; nothing where one of them is missing."""
        if not self._names.issuperset(names):
            return NOTHING
        return self._table.value(function, *names), self._table.ci95(function, *names)

    def mean_where_any(self, name: Name) -> Maybe:
        """Of a partial column, over the samples that have a number."""
        if not np.isfinite(self._tops.get(name, -np.inf)):
            return NOTHING
        return self.of(np.divide, (*name, "value"), (*name, "exists"))

    def log_mean(self, *names: Name) -> Maybe:
        """Logarithm of the sum over columns of logarithms of their mean volumes; −inf counts as volume 0."""
        present = [name for name in names if np.isfinite(self._tops.get(name, -np.inf))]
        if not present:
            return NOTHING
        top = max(self._tops[name] for name in present)
        scales = [np.exp(self._tops[name] - top) for name in present]

        def total(*means: Array) -> Array:
            summed: Array = top + np.log(sum(scale * mean for scale, mean in zip(scales, means, strict=True)))
            return summed

        return self.of(total, *((*name, "volume") for name in present))


def _volumes(logs: Array, top: float) -> Array:
    """Volumes in units of the largest, so that none leaves the range of numbers."""
    exists = np.isfinite(logs)
    return np.where(exists, np.exp(np.where(exists, logs - top if np.isfinite(top) else 0.0, 0.0)), 0.0)


def _top(column: Array) -> float:
    """The largest number; −inf where there is none."""
    return float(column[np.isfinite(column)].max(initial=-np.inf))
