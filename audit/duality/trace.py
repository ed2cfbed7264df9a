"""Tr H of a layer from what the capture pass left: Σ_tt′ (x_t·x_t′) tr S^{tt′}, summed over a record's samples."""

from __future__ import annotations

import torch

from audit.record import Record


def hessian_trace(record: Record, name: str) -> float:
    """Sum over the record's samples; divide by the size of the split for the mean loss."""
    layer = record.layers[name]
    x = layer.x.double()
    n, T, out = layer.z.shape
    if out < T:
        total = torch.stack([G.square().sum() for G in record.gauss_newton_weight_root(name)]).sum()
    elif T == 1:
        total = x.square().sum((1, 2)) @ record.loss_function.curvature_trace(record.f, layer.J.double().flatten(2))
    else:
        A = record.gauss_newton_root(name)  # A [n, C, T, out] with S = Aᵀ A + R
        rows = A.transpose(1, 2).flatten(2)
        total = ((x @ x.mT) * (rows @ rows.mT)).sum()
    if layer.residual_times is not None:
        for t in range(T):
            reach = x @ x[:, t, :, None]  # [n, T, 1]  x_t′·x_t
            for o in range(out):
                unit = torch.zeros(T, out, dtype=torch.float64, device=x.device)
                unit[t, o] = 1.0
                total = total + (reach[:, :, 0] * layer.residual_times(unit.expand(n, T, out))[:, :, o]).sum()
    return float(total)
