"""What a claim is, and the few kinds of statistics that claims are judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from papers.measuring import RESCALED
from papers.statistics import DRAWS, Above, Always, Below, Floats, Rows, Statistic, Table, Test, spearman

CLEAN = ("rate", "batch", "decay", "start", "dropout")  # axes whose networks learn the same samples and labels
TOLERANCE = 2e-5  # relative, of sums of what is stored to six digits
Column = str | Callable[[Table], Floats]
Build = Callable[[Table], tuple[Statistic, Sequence[str]]]
"""Given the networks: the statistic, and the settings that it is about."""


@dataclass(frozen=True)
class Claim:
    """A sentence of ours for what a paper says, and how it is held against the networks."""

    where: str  # figure, equation or section
    says: str
    what: str  # the number that is looked at
    build: Build
    test: Test
    among: bool = False  # whether chance in the choice of settings counts, too
    detail: Callable[[Table], str] = lambda table: ""

    def judged(self, table: Table) -> dict[str, Any]:
        """As it is kept; where axes are pooled, also of those networks alone that training brought to the loss."""
        statistic, settings = self.build(table)
        certain = isinstance(self.test, Always)
        seen = table.seen(statistic, settings, self.among, 0 if certain else DRAWS)
        return {
            "where": self.where,
            "says": self.says,
            "what": self.what,
            "value": seen.value,
            "ci95": None if certain else [seen.low, seen.high],
            "networks": seen.networks,
            "detail": self.detail(table),
            "claimed": str(self.test),
            "verdict": self.test.verdict(seen),
            "trained": self._of_trained(table.trained()) if self.among else None,
        }

    def _of_trained(self, table: Table) -> dict[str, Any]:
        seen = table.seen(*self.build(table), self.among)
        return {"value": seen.value, "ci95": [seen.low, seen.high], "verdict": self.test.verdict(seen)}


def clean(table: Table) -> tuple[str, ...]:
    """The settings of the clean axes, the base once."""
    return tuple(dict.fromkeys(name for axis in CLEAN for name in table.on(axis)))


def values(table: Table, column: Column) -> Floats:
    """A column, or what a function makes of the table."""
    return table[column] if isinstance(column, str) else column(table)


def share(of: str, whole: str) -> Column:
    """One column divided by another."""
    return lambda table: table[of] / table[whole]


def rescaled(column: str) -> Column:
    """A column of Hessians after layers were scaled by λ, drawn anew for each network from the range of the paper.

    H becomes H/λ². That it does is what the invariance of κ says, which is measured of every network really rescaled.
    """
    return lambda table: table[column] / np.random.default_rng(0).uniform(*RESCALED, len(table.setting)) ** 2


# Kinds of statistics.


def trend(where: str, says: str, axis: str, column: Column, test: Test) -> Claim:
    """How a number goes along an axis: rank correlation with the axis' value, over its networks."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        names = table.on(axis)
        place = np.array([names.index(name) if name in names else -1 for name in table.setting], float)
        y = values(table, column)
        return lambda rows: spearman(place[rows], y[rows]), names

    return Claim(where, says, "rank correlation along the axis", build, test, detail=_means(axis, column))


def ratio(where: str, says: str, axis: str, column: Column, test: Test) -> Claim:
    """The mean at the last point of an axis over that at the first."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        y, (first, last) = values(table, column), _ends(table, axis)
        return lambda rows: mean_of(table, y, rows, last) / mean_of(table, y, rows, first), (first, last)

    return Claim(where, says, "last ÷ first mean on the axis", build, test, detail=_means(axis, column))


def more(where: str, says: str, axis: str, columns: tuple[Column, Column], grows: bool) -> Claim:
    """Of two parts, the first changes more in the claimed direction, from one end of an axis to the other."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        (a, b), (first, last) = (values(table, column) for column in columns), _ends(table, axis)

        def statistic(rows: Rows) -> float:
            change = [mean_of(table, y, rows, last) - mean_of(table, y, rows, first) for y in (a, b)]
            return change[0] - change[1]

        return statistic, (first, last)

    def detail(table: Table) -> str:
        return " against ".join(_means(axis, column, ends=True)(table) for column in columns)

    what = "change of the first minus that of the second, in nats"
    return Claim(where, says, what, build, Above() if grows else Below(), detail=detail)


def correlation(where: str, says: str, pair: tuple[Column, Column], test: Test, axes: Sequence[str] = CLEAN) -> Claim:
    """Rank correlation of two numbers over the networks of several axes."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        a, b = (values(table, column) for column in pair)
        names = tuple(dict.fromkeys(name for axis in axes for name in table.on(axis)))
        return lambda rows: spearman(a[rows], b[rows]), names

    return Claim(where, says, "rank correlation over networks", build, test, among=True)


def stronger(where: str, says: str, first: tuple[Column, Column], second: tuple[Column, Column]) -> Claim:
    """One rank correlation is larger than another, on the same networks."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        a, b, c, d = (values(table, column) for column in (*first, *second))
        return lambda rows: spearman(a[rows], b[rows]) - spearman(c[rows], d[rows]), clean(table)

    def detail(table: Table) -> str:
        rows = np.concatenate([table.rows(name) for name in clean(table)])
        found = (spearman(values(table, x)[rows], values(table, y)[rows]) for x, y in (first, second))
        return " against ".join(f"{value:.2f}" for value in found)

    return Claim(where, says, "difference of rank correlations", build, Above(), among=True, detail=detail)


def mean(where: str, says: str, column: Column, test: Test, settings: Sequence[str] = ()) -> Claim:
    """The mean over the networks of some settings, or of all."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        y = values(table, column)
        return lambda rows: float(np.nanmean(y[rows])), settings or tuple(dict.fromkeys(table.setting))

    return Claim(where, says, "mean", build, test, among=not settings)


def always(where: str, says: str, is_so: Callable[[Table], Floats], largest: Column | None = None) -> Claim:
    """Something of every network that has the numbers; `largest`: what is printed the largest of."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        y = is_so(table)
        return lambda rows: float(np.nanmean(y[rows])), tuple(dict.fromkeys(table.setting))

    def detail(table: Table) -> str:
        return "" if largest is None else f"largest {np.nanmax(values(table, largest)):.2g}"

    return Claim(where, says, "share of networks", build, Always(), detail=detail)


def changed(where: str, says: str, column: Column, settings: tuple[str, str], test: Test) -> Claim:
    """The second setting minus the first, seed by seed: both begin at the same weights."""

    def build(table: Table) -> tuple[Statistic, Sequence[str]]:
        y, before, after = values(table, column), *(table.rows(name) for name in settings)
        by_seed = dict(zip(table["seed"][before].tolist(), y[before].tolist(), strict=True))
        change = np.full(len(y), np.nan)
        change[after] = [y[row] - by_seed.get(table["seed"][row], np.nan) for row in after]
        return lambda rows: float(np.nanmean(change[rows])), settings[1:]

    def detail(table: Table) -> str:
        y = values(table, column)
        return " → ".join(short(np.nanmean(y[table.rows(name)])) for name in settings)

    return Claim(where, says, "mean difference, seed by seed", build, test, detail=detail)


def short(value: float) -> str:
    """Three digits, or whole."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _ends(table: Table, axis: str) -> tuple[str, str]:
    names = table.on(axis)
    return names[0], names[-1]


def mean_of(table: Table, y: Floats, rows: Rows, setting: str) -> float:
    """Over those of the drawn networks that are of a setting."""
    first = table.rows(setting)
    inside = rows[(rows >= first[0]) & (rows <= first[-1])]
    return float(np.nanmean(y[inside]))


def _means(axis: str, column: Column, ends: bool = False) -> Callable[[Table], str]:
    def detail(table: Table) -> str:
        names, y = table.on(axis), values(table, column)
        shown = _ends(table, axis) if ends else names
        return " → ".join(short(np.nanmean(y[table.rows(name)])) for name in shown)

    return detail
