"""The record of a study: every number of every network once, the mean spectra of a setting, and the claims judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from papers.claims import Claim
from papers.feng_tu import CLAIMS as FENG_TU
from papers.measuring import SHOWN
from papers.others import JIA_SU, PETZKA, SENSITIVITY
from papers.statistics import DRAWS, Table, table
from papers.training import DECAYED, TARGET, Setting

PAPERS: dict[str, tuple[Claim, ...]] = {
    "Feng & Tu (2022), activity–weight duality": FENG_TU,
    "Jia & Su (2020), determinant of the Fisher information": JIA_SU,
    "Petzka et al. (2019), reparameterization-invariant flatness": PETZKA,
    "From loss flatness to compressed representations (2024), sensitivity and volume": SENSITIVITY,
}
UNUSED = (
    *(
        f"{layer}.{name}"
        for layer in ("fc1", "fc3")
        for name in ("weight_norm_squared", "lambda_max", "trace", "kappa")
    ),
    *(f"{layer}.relative_flatness" for layer in ("fc1", "fc2")),
    *("kappa_max", "kappa_sum", "trace_sum"),
    *("gamma_norms", "gamma_angles", "singular_subsets", "pac_bayes.vacuous", "mean_log_volume_centred", "temperature"),
    *(f"{bound}.right" for bound in ("prop-3.4", "prop-3.6", "prop-3.8", "prop-e.4", "eq-35")),
    "aw.drop",
)
"""Measured, and left in the folder of the run: no claim and no table asks for it."""

Axes = Mapping[str, Sequence[float]]


def recorded(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Setting], axes: Axes) -> dict[str, Any]:
    """Everything that the page says, from the networks as measured."""
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in ("spectra", *UNUSED)))
    networks = [[row.get(column) for column in columns] for row in rows]
    base = asdict(Setting())
    changes = {
        name: {key: value for key, value in asdict(setting).items() if value != base[key]}
        for name, setting in settings.items()
    }
    return {
        "what": {"train_loss": TARGET, "decayed_epochs": DECAYED, "draws": DRAWS},
        "base": base,
        "settings": changes,
        "axes": {axis: points(axis, axes) for axis in axes},
        "columns": columns,
        "networks": networks,
        "spectra": {"n": list(SHOWN), **{name: _spectra(rows, name) for name in settings}},
        "claims": judged(table_of(columns, networks, {axis: tuple(points(axis, axes)) for axis in axes})),
    }


def points(axis: str, axes: Axes) -> dict[str, float]:
    """The settings along an axis with their values, in their order; the base is one of them."""
    base = asdict(Setting())[axis]
    return {"base" if value == base else f"{axis}={value:g}": value for value in sorted((*axes[axis], base))}


def table_of(columns: Sequence[str], networks: Sequence[Sequence[Any]], axes: Mapping[str, tuple[str, ...]]) -> Table:
    """The networks of a record, ready for statistics."""
    return table([dict(zip(columns, values, strict=True)) for values in networks], axes)


def judged(networks: Table) -> dict[str, list[dict[str, Any]]]:
    """Every claim of every paper."""
    return {paper: [claim.judged(networks) for claim in claims] for paper, claims in PAPERS.items()}


def table_from(record: Mapping[str, Any]) -> Table:
    """The same table, from the JSON."""
    axes = {axis: tuple(values) for axis, values in record["axes"].items()}
    return table_of(record["columns"], record["networks"], axes)


def _spectra(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[float]]:
    """Means over a setting's networks."""
    found = [row["spectra"] for row in rows if row["setting"] == name and row["matched"]]
    return {key: np.mean([one[key] for one in found], 0).tolist() for key in ("sigma_g", "sum_w")} if found else {}
