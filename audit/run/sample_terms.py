"""What each train sample adds to the network's numbers: columns whose means over the samples stand in the report.

A report keeps means and their intervals. To compare two models sample by sample, the addends themselves are needed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.curvature.hessian import LayerHessian
from audit.maths.decompositions import largest_singular_value
from audit.measures.contract import Audit
from audit.measures.fisher.robustness import squared_slope
from audit.measures.flatness.block import NetworkFlatness
from audit.measures.flatness.terms import terms_of
from audit.measures.suite import Results
from audit.network.layers import DenseLayer
from audit.network.record import LayerProducts, Products, Record

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
