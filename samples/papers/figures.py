"""The figures of the page: Figs 3 and 4 of Feng & Tu, their other axes, and the other papers' correlations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from papers.claims import CLEAN, Column, clean, rescaled, values
from papers.drawing import Panel, Series, figure
from papers.record import table_from
from papers.statistics import Floats, Table

WORDS = {
    "rate": "learning rate α",
    "batch": "batch B",
    "decay": "weight decay β",
    "start": "scale of the start s",
    "dropout": "dropout d",
    "part": "share of the 4,000 train samples",
    "wrong": "share of wrong labels ρ",
    "fisher": "weight of the regularizer β",
}
PARTS = {"gap": "gap", "sharp": "10 sharpest", "flat": "all others"}


def figures(record: Mapping[str, Any]) -> dict[str, str]:
    """SVG by file name."""
    table = table_from(record)
    sgd = [panel for axis in ("rate", "batch") for panel in _row(record, table, axis)]
    size = [panel for axis in ("decay", "start") for panel in _row(record, table, axis)]
    others = [_parts(record, table, axis) for axis in ("dropout", "part", "wrong")]
    return {
        "fig-3.svg": figure(sgd, 3, "Sharpness, size and gap along learning rate and batch"),
        "fig-4.svg": figure(size, 3, "Sharpness, size and gap along weight decay and the scale of the start"),
        "others.svg": figure(others, 3, "The gap's two parts along dropout, size of the train data and wrong labels"),
        "correlations.svg": figure(_correlations(table), 3, "Measures of the other papers against the loss gap"),
    }


def _row(record: Mapping[str, Any], table: Table, axis: str) -> list[Panel]:
    """Panels A, B and C of an axis."""
    n, points = record["spectra"]["n"], record["axes"][axis]
    found = {name: record["spectra"][name] for name in table.on(axis)}
    label = WORDS[axis].split()[-1]
    sharpness, size = (
        tuple(Series(f"{label} = {points[name]:g}", n, spectra[key]) for name, spectra in found.items())
        for key in ("sigma_g", "sum_w")
    )
    return [
        Panel("Sharpness σ_g by direction", "direction n", _positive(sharpness), log="xy", names="left"),
        Panel("Size: running sum of σ_w", "direction n", size, log="xy", names="right"),
        _parts(record, table, axis),
    ]


def _positive(series: tuple[Series, ...]) -> tuple[Series, ...]:
    """Without directions along which the loss is flat to rounding, which a logarithm cannot show."""
    kept = [(one, [place for place, value in enumerate(one.y) if value > 1e-4 * one.y[0]]) for one in series]
    return tuple(
        Series(one.name, [one.x[place] for place in places], [one.y[place] for place in places]) for one, places in kept
    )


def _parts(record: Mapping[str, Any], table: Table, axis: str) -> Panel:
    """Panel C: the gap and its two parts, means and standard deviations."""
    names, points = table.on(axis), record["axes"][axis]
    series = tuple(_means(table, names, f"aw.{part}", words) for part, words in PARTS.items())
    return Panel("Gap and its parts (nats)", WORDS[axis], series, [f"{points[name]:g}" for name in names])


def _means(table: Table, names: tuple[str, ...], column: str, words: str) -> Series:
    each: list[Floats] = [table[column][table.rows(name)] for name in names]
    spread = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in each]
    return Series(words, list(range(len(names))), [float(values.mean()) for values in each], spread)


def _correlations(table: Table) -> list[Panel]:
    shown = (
        ("Gap against κ_τ, last hidden layer", "κ_τ", "fc2.kappa_tau", "x"),
        ("… against the trace, layers rescaled", "Tr H", rescaled("fc2.trace"), "x"),
        ("Gap against γ̂", "γ̂", "gamma", ""),
        ("Gap against the sharpness S(θ)", "S(θ)", "sharpness", "x"),
        ("Gap against MLS", "MLS", "mls", "x"),
        ("Gap against the log-volume", "mean log-volume", "mean_log_volume", ""),
    )
    return [Panel(title, label, _by_axis(table, column), log=log) for title, label, column, log in shown]


def _by_axis(table: Table, column: Column) -> tuple[Series, ...]:
    """One colour for each clean axis; the base has the first one's."""
    seen: set[str] = set()
    x, found = values(table, column), []
    for axis in CLEAN:
        names = [name for name in table.on(axis) if name in clean(table) and name not in seen]
        seen |= set(names)
        rows = np.concatenate([table.rows(name) for name in names])
        found.append(Series(axis, x[rows].tolist(), table["loss_gap"][rows].tolist(), scattered=True))
    return tuple(found)
