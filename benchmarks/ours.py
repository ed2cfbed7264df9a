"""gen-audit's own way to each number, from the network and its samples, with nothing kept from one run to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from audit.curvature import LayerHessian
from audit.curvature.spectrum import top_eigenpairs
from audit.maths.decompositions import local_map
from audit.measures.contract import Audit
from audit.measures.duality.measure import gauss_newton_trace
from audit.measures.fisher.determinant import log_determinants
from audit.measures.fisher.gram import GradientSource
from audit.measures.fisher.measure import draw_subsets
from audit.measures.sensitivity.sharpness import dense_squares
from audit.network.capture import Capture
from audit.network.parameter_gradients import SampleGradients, other_parameters
from audit.network.record import LayerProducts, Products
from audit.network.records import Records
from benchmarks.cases import Case

Array = NDArray[np.float64]
Run = Callable[[], Array]


def traces(case: Case) -> Run:
    """Tr H of each dense layer."""
    audit = case.audit()

    def run() -> Array:
        totals = np.zeros(len(audit.layers))
        for record in _shallow(audit).full(case.x, case.y):
            assert not record.has_graph(), "Gauss–Newton is the Hessian only where the network is piecewise linear"
            totals += [gauss_newton_trace(LayerProducts(record, layer.name)) for layer in audit.layers]
        return totals / len(case.x)

    return run


def sharpness(case: Case) -> Run:
    """S(θ) over all parameters."""
    audit = case.audit()
    network = audit.network

    def run() -> Array:
        others = SampleGradients(network, other_parameters(network, audit.layers), case.x)
        total = 0.0
        for record in _shallow(audit).full(case.x, case.y):
            rows = slice(record.start, record.start + len(record.f))
            total += float(others.squares(case.x[rows])[0].sum())
            for layer in audit.layers:
                bias = network.get_submodule(layer.module).bias
                squares = dense_squares(LayerProducts(record, layer.name), audit.weight(layer), bias)
                total += float((squares.weight + squares.bias).sum())
        return np.array([total / len(case.x)])

    return run


def top_eigenvalues(case: Case, k: int, tolerance: float, values_only: bool) -> Run:
    """The k largest eigenvalues of each dense layer's Hessian."""
    audit = case.audit()

    def run() -> Array:
        records = _records(audit)
        pairs = [
            top_eigenpairs(LayerHessian(records, layer), k, tolerance, values_only=values_only)
            for layer in audit.layers
        ]
        return torch.cat([found.values for found in pairs]).numpy()

    return run


def log_determinant(case: Case) -> Run:
    """γ̂ over the subsets of the Fisher measure."""
    audit = case.audit()
    chosen = audit.settings

    def run() -> Array:
        subsets = draw_subsets(len(case.x), chosen.subset_size, chosen.subsets, chosen.seed)
        source = GradientSource(replace(audit, train=_records(audit)), subsets, lambda record: record.gradient)
        for record in _shallow(audit).full(case.x, case.y):
            source.see(record)
        dets = log_determinants(torch.stack(list(source.grams().values())).sum(0))
        return np.array([float((dets.norms + dets.angles).mean())])

    return run


def input_map(case: Case) -> Run:
    """MLS and the mean log-volume of the map from the input to the scores."""
    audit = case.audit()
    epsilon = torch.finfo(case.x.dtype).eps

    def run() -> Array:
        largest, volumes = [], []
        for record in audit.capture.full(case.x, case.y):
            products = Products(record)
            assert products.input_map is not None
            K, gram = products.input_map
            local = local_map(K, case.x[0].numel(), epsilon, gram)
            largest.append(local.largest)
            volumes.append(local.log_volume)
        volume = torch.cat(volumes)
        return np.array([float(torch.cat(largest).mean()), float(volume[volume.isfinite()].mean())])

    return run


def _shallow(audit: Audit) -> Capture:
    """The capture pass where nobody asks for ∂f/∂input: it stops at the first dense layer."""
    return replace(audit.capture, to_input=False, side_by_side=True)


def _records(audit: Audit) -> Records:
    """The train records, not yet captured."""
    return Records(_shallow(audit), audit.train.x, audit.train.y, audit.train.room, full=True)
