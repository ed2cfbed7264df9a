"""Tr H of a layer too large for a complete basis: Σ_tt′ (x_t·x_t′) tr S^{tt′} with S = Aᵀ A + R, over all samples.

The Gauss–Newton part comes with the capture pass. What R adds takes second derivatives, so it is asked for only where
a layer is really decomposed; it is exact or estimated as in the flatness measures, from the same random signs.
"""

from __future__ import annotations

from audit.curvature.rest import rest_trace
from audit.measure import Audit
from audit.record import Record


def gauss_newton_trace(record: Record, name: str) -> float:
    """What Aᵀ A gives, summed over the record's samples."""
    layer = record.layers[name]
    x = layer.x.double()
    _, T, out = layer.z.shape
    if T == 1:
        return float(x.square().sum((1, 2)) @ record.gauss_newton_diagonal(name).sum(1))
    if out < T:
        return sum(float(G.square().sum()) for G in record.gauss_newton_weight_root(name))
    rows = record.gauss_newton_root(name).transpose(1, 2).flatten(2)  # A [n, C, T, out] → [n, T, C·out]
    return float(((x @ x.mT) * (rows @ rows.mT)).sum())


def trace_of_rest(audit: Audit, name: str) -> float:
    """What R adds, summed over all train samples."""
    n, seed = len(audit.train), audit.settings.seed
    return sum(float(rest_trace(record.layers[name], n, record.start, seed).sum()) for record in audit.train)
