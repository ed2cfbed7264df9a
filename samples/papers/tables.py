"""The tables of the other three papers in miniature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from papers.claims import Column, clean, rescaled, short, values
from papers.statistics import Table, spearman

FISHER = {
    "test_error": "test error",
    "gamma": "γ̂",
    "frobenius_norm": "Frobenius norm",
    "spectral_radius": "spectral radius",
    "robustness": "robustness",
    "pac_bayes.bound": "bound of Theorem 1",
}
FLATNESS = {
    "fc1.kappa_tau": "κ_τ, fc1",
    "fc2.kappa_tau": "κ_τ, fc2",
    "fc3.kappa_tau": "κ_τ, fc3",
    "kappa_tau_max": "κ_τ, largest",
    "kappa_tau_sum": "κ_τ, sum",
    "fc2.kappa": "κ, fc2",
    "fc1.rho_sigma": "ρ_σ, fc1",
    "fc2.rho_sigma": "ρ_σ, fc2",
    "fc2.rho": "ρ, fc2",
    "rho_max": "ρ, largest",
    "rho_sum": "ρ, sum",
    "fc2.trace": "Tr H, fc2",
    "fc2.lambda_max": "λ_max, fc2",
}
SENSITIVITY = {
    "sharpness": "S(θ)",
    "chain.A": "A: MLS",
    "chain.B": "B",
    "chain.C": "C",
    "chain.D": "D: bound 3.8",
    "nmls": "NMLS",
    "prop-3.10.right": "bound 3.10",
    "mean_log_volume": "log-volume",
    "dimensionality": "dimensionality",
}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def none(table: Table) -> Iterator[str]:
    """No table: the figures say it."""
    yield from ()


def of_fisher(table: Table) -> Iterator[str]:
    """The numbers behind Figs 2 and 4, and Tables 1 and 3."""
    yield "Means and standard deviations over seeds (Figs 2 and 4, Tables 1 and 3):"
    yield _by_setting(table, ("wrong", "batch", "fisher"), FISHER)


def of_flatness(table: Table) -> Iterator[str]:
    """Correlations as in Figs 1 to 6."""
    rows = np.concatenate([table.rows(name) for name in clean(table)])
    measures: dict[str, Column] = {words: name for name, words in FLATNESS.items()}
    measures |= {f"{FLATNESS[name]}, layers rescaled": rescaled(name) for name in ("fc2.trace", "fc2.lambda_max")}
    found = [
        (
            words,
            *(minus(f"{spearman(values(table, one)[rows], table[of][rows]):.2f}") for of in ("loss_gap", "test_error")),
        )
        for words, one in measures.items()
    ]
    yield f"Rank correlations over the {len(rows)} networks with clean labels and all samples:"
    yield markdown(("measure", "with the loss gap", "with the test error"), found)


def of_sensitivity(table: Table) -> Iterator[str]:
    """The numbers behind Figs 1, 2 and G.4, of finished networks."""
    yield "Means and standard deviations over seeds (Figs 1, 2 and G.4):"
    yield _by_setting(table, ("rate", "batch"), SENSITIVITY)


def _by_setting(table: Table, axes: Iterable[str], columns: Mapping[str, str]) -> str:
    names = dict.fromkeys(name for axis in axes for name in table.on(axis))
    rows = [(name.replace("=", " "), *(_mean(table, column, name) for column in columns)) for name in names]
    return markdown(("setting", *columns.values()), rows)


def _mean(table: Table, column: str, setting: str) -> str:
    found = table[column][table.rows(setting)]
    spread = np.nanstd(found, ddof=1) if len(found) > 1 else float("nan")
    digits = ".0f" if spread >= 10 else ".2g"
    return minus(f"{short(np.nanmean(found))} ± {spread:{digits}}")


def minus(number: str) -> str:
    """With the sign that is one."""
    return number.replace("-", "−")
