"""Audits two models on the same data and compares them; what follows the train loss, at one common train loss."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.compare import Comparison, Matched, Named
from audit.compare.comparable import AtOneLoss, Measured, short_names
from audit.compare.compare import compare_reports
from audit.curvature import LayerHessian
from audit.maths.decompositions import largest_singular_value
from audit.measures import Report
from audit.measures.contract import Audit
from audit.measures.fisher.determinant import squared_slope
from audit.measures.flatness.block import NetworkFlatness
from audit.measures.flatness.terms import terms_of
from audit.measures.suite import Results
from audit.network import DenseLayer
from audit.network.record import LayerProducts, Products, Record
from audit.run.assemble import ordinary_sizes
from audit.run.pipeline import NOTHING, Following, run_audit
from audit.run.progress import Progress
from audit.settings import Settings

EQUAL = 1e-6  # relative difference of two train losses below which nothing needs matching


def compare_models(
    old: Path, new: Path, data: Path, settings: Settings, command: str, progress: Progress
) -> Comparison:
    """Both audits, a third one of the model with the smaller train loss, softened, and the comparison.

    All follow the plan of the first. Samples are paired only where all were measured.
    """
    names = dict(zip((old, new), short_names(str(old), str(new)), strict=False))

    def audited(role: str, path: Path, following: Following = NOTHING) -> Measured:
        progress.about(f"{role}: {names[path]}")
        found = run_audit(path, data, settings, command, progress, following)
        if not found.audit.plan.is_exact("flatness"):
            return Measured(found.report, shown=found.shown)
        with ordinary_sizes():
            return Measured(found.report, sample_terms(found.audit, found.results), found.shown)

    first = audited("old", old)
    plan = first.report.plan
    follow = Following(plan=plan, baseline=first.report, only_with=Named(str(old), first.report))
    second = audited("new", new, follow)
    target = max(first.report.gap.train_loss, second.report.gap.train_loss)
    at_one_loss: AtOneLoss | None = None
    if first.report.model.task == "regression":
        at_one_loss = AtOneLoss(first, second, None)
    elif _apart(first.report, second.report) <= EQUAL * target:
        at_one_loss = AtOneLoss(first, second, Matched(target=target, scaled=None, factor=1.0))
    elif target < _guessing(first.report):
        older = first.report.gap.train_loss < target
        scaled: Literal["old", "new"] = "old" if older else "new"
        softened = audited(f"{scaled}, at one train loss", old if older else new, Following(target, plan))
        matched = Matched(target=target, scaled=scaled, factor=softened.report.model.factor)
        at_one_loss = AtOneLoss(softened, second, matched) if older else AtOneLoss(first, softened, matched)
    sides = Named(str(old), first.report), Named(str(new), second.report)
    return compare_reports(*sides, command, at_one_loss, second.shown)


def _apart(old: Report, new: Report) -> float:
    return abs(old.gap.train_loss - new.gap.train_loss)


def _guessing(report: Report) -> float:
    """The loss of guessing: no softening leads beyond it."""
    return math.log(max(2, report.model.outputs))


# What each train sample adds to the network's numbers: columns whose means over the samples stand in the report.
#
# A report keeps means and their intervals. To compare two models sample by sample, the addends themselves are needed.


Columns = dict[str, NDArray[np.float64]]
SUMS = ("kappa_tau_sum", "rho_sum", "relative_flatness_sum", "trace_sum")


def sample_terms(audit: Audit, results: Results) -> Columns:
    """Addends of the network's flatness and of how it answers to its input, by path in report.json [n]."""
    return flatness_terms(audit, results.measurements["flatness"].network) | input_terms(audit)


def input_terms(audit: Audit) -> Columns:
    """‖∂f/∂x‖₂ and ‖∂softmax/∂x‖₂² of each sample; empty for inputs that have no derivative."""
    largest, slopes = [], []
    for record in audit.train:
        products = Products(record)
        if products.input_map is None:
            return {}
        K, gram = products.input_map
        largest.append(largest_singular_value(K))
        if record.loss_function.class_per_sample:
            slopes.append(squared_slope(record.loss_function, record.f, record.y, K, gram))
    found = {"network.sensitivity.mls": largest, "network.fisher.robustness": slopes}
    return {key: torch.cat(column).double().cpu().numpy() for key, column in found.items() if column}


def flatness_terms(audit: Audit, block: NetworkFlatness | None) -> Columns:
    """By path in report.json [n]; empty where the network has no flatness."""
    if block is None or block.skipped is not None:
        return {}
    layers = [layer for layer in audit.layers if layer.name in block.layers]
    rows = [torch.stack([_terms(audit, record, layer) for layer in layers]).sum(0) for record in audit.train]
    sums = torch.cat(rows).cpu().numpy()
    found = {name: sums[:, place] for place, name in enumerate(SUMS)}
    quotients = {layer.name: _quotients(audit, layer) for layer in layers}
    largest = max(quotients.values(), key=lambda column: float(column.mean()))
    kappas = [_norm2(audit, layer) * quotients[layer.name] for layer in layers]
    found |= {"kappa_sum": np.sum(kappas, axis=0), "lambda_max": largest}
    return {f"network.flatness.{name}": column for name, column in found.items()}


def _terms(audit: Audit, record: Record, layer: DenseLayer) -> Tensor:
    """The layer's part in each of SUMS [n, 4]."""
    bias = audit.network.get_submodule(layer.module).bias if layer.bias else None
    assert bias is None or isinstance(bias, Tensor)
    products = LayerProducts(record, layer.name)
    terms = terms_of(products, audit.weight(layer), bias, len(audit.train), audit.settings.seed)
    return torch.stack([_norm2(audit, layer) * terms.trace, terms.rows.sum(1), terms.relative, terms.trace], 1)


def _quotients(audit: Audit, layer: DenseLayer) -> NDArray[np.float64]:
    """vᵀ H_i v [n] at the eigenvector v of the layer's largest eigenvalue."""
    _, vector, _ = audit.spectra.largest(layer)
    quotients: NDArray[np.float64] = LayerHessian(audit.train, layer).rayleigh_quotients(vector).cpu().numpy()
    return quotients


def _norm2(audit: Audit, layer: DenseLayer) -> float:
    return float(audit.weight(layer).square().sum())
