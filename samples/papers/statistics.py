"""What is seen of many networks, each number with a 95 % interval, and the rule that makes a verdict of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
HOLDS, DOES_NOT, CANNOT_TELL = "holds", "does not", "cannot tell"

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Statistic = Callable[[Rows], float]
"""A number of the networks in these rows of the table."""


@dataclass(frozen=True)
class Seen:
    """A number with its interval, and the networks behind it."""

    value: float
    low: float
    high: float
    networks: int


@dataclass(frozen=True, eq=False)
class Table:
    """All networks of the study that have reached the train loss, column by column."""

    setting: tuple[str, ...]
    columns: Mapping[str, Floats]
    axes: Mapping[str, tuple[str, ...]]  # settings along each axis, in the order of their values

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @cache  # noqa: B019
    def trained(self) -> Table:
        """The networks that training alone has brought to the loss, without the factor's help."""
        kept = self.columns["reached"] == 1
        setting = tuple(name for name, there in zip(self.setting, kept, strict=True) if there)
        return Table(setting, {name: values[kept] for name, values in self.columns.items()}, self.axes)

    @cache  # noqa: B019
    def rows(self, setting: str) -> Rows:
        """Where the networks of a setting stand."""
        return np.array([row for row, name in enumerate(self.setting) if name == setting], np.int64)

    def on(self, axis: str) -> tuple[str, ...]:
        """The settings of an axis that have networks."""
        return tuple(name for name in self.axes[axis] if len(self.rows(name)))

    @cache  # noqa: B019
    def draws(self, settings: tuple[str, ...], among: bool, count: int) -> list[Rows]:
        """Bootstrap draws of networks: within every setting anew; with `among`, of settings before."""
        random, found = np.random.default_rng(0), []
        for _ in range(count):
            chosen = random.choice(settings, len(settings)) if among else settings
            found.append(np.concatenate([random.choice(rows := self.rows(name), len(rows)) for name in chosen]))
        return found

    def seen(self, statistic: Statistic, settings: Sequence[str], among: bool, draws: int = DRAWS) -> Seen:
        """The statistic with a percentile interval; without draws, alone."""
        settings = tuple(settings)
        rows = np.concatenate([self.rows(name) for name in settings])
        value = float(statistic(rows))
        drawn = [statistic(draw) for draw in self.draws(settings, among, draws)] or [value]
        low, high = np.nanpercentile(drawn, [2.5, 97.5]).tolist()
        return Seen(value, low, high, len(rows))


def table(networks: Sequence[Mapping[str, Any]], axes: Mapping[str, tuple[str, ...]]) -> Table:
    """Of plain rows; what a network does not have is NaN, and networks at another train loss are left out."""
    kept = [row for row in networks if row["matched"]]
    names = [name for name in dict.fromkeys(key for row in kept for key in row) if name != "setting"]
    columns = {
        name: np.array([np.nan if row.get(name) is None else row[name] for row in kept], float) for name in names
    }
    return Table(tuple(row["setting"] for row in kept), columns, axes)


# Statistics.


def ranks(values: Floats) -> Floats:
    """From 0; equal values share the mean of their places."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    return (last - (counts + 1) / 2)[inverse]


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation of the pairs that both exist; NaN where one does not vary."""
    both = ~(np.isnan(a) | np.isnan(b))
    x, y = ranks(a[both]), ranks(b[both])
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else float("nan")


# Verdicts.


@dataclass(frozen=True)
class Above:
    """The claim is that the number lies above a limit."""

    limit: float = 0.0

    def verdict(self, seen: Seen) -> str:
        """Of the whole interval."""
        return HOLDS if seen.low > self.limit else DOES_NOT if seen.high < self.limit else CANNOT_TELL

    def __str__(self) -> str:
        return f"> {self.limit:g}"


@dataclass(frozen=True)
class Below:
    """The claim is that the number lies below a limit."""

    limit: float = 0.0

    def verdict(self, seen: Seen) -> str:
        """Of the whole interval."""
        return HOLDS if seen.high < self.limit else DOES_NOT if seen.low > self.limit else CANNOT_TELL

    def __str__(self) -> str:
        return f"< {self.limit:g}"


@dataclass(frozen=True)
class Within:
    """The claim is that the number lies between two limits."""

    least: float
    most: float

    def verdict(self, seen: Seen) -> str:
        """Inside as a whole, outside as a whole, or neither."""
        if self.least <= seen.low and seen.high <= self.most:
            return HOLDS
        return DOES_NOT if seen.high < self.least or seen.low > self.most else CANNOT_TELL

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Always:
    """The claim is about every single network: one exception is enough against it."""

    def verdict(self, seen: Seen) -> str:
        """Of the share of networks in which it is so."""
        return HOLDS if seen.value == 1 else DOES_NOT

    def __str__(self) -> str:
        return "every network"


Test = Above | Below | Within | Always
SAME = Within(0.8, 1.25)
"""What counts as unchanged: the mean at one end of an axis over that at the other."""
