"""The flatness measures from a Hessian that was formed whole."""

from __future__ import annotations

import torch
from references.whole.problem import Block, Problem
from torch import Tensor

NAMES = (
    *("lambda_max", "trace", "kappa", "kappa_tau", "rho", "rho_sigma", "rho_columns", "rho_columns_sigma"),
    "relative_flatness",
)


def flatness(p: Problem, path: str, H: Tensor) -> Block:
    """Petzka et al., Table 1 and relative flatness, read off the Hessian; none where x moves with W."""
    W = p.weight(path)
    (out, size), norm2 = W.shape, float(W.square().sum())
    if path in (*p.shared, *p.fed_by_itself):
        return {"weight_norm_squared": norm2, **dict.fromkeys(NAMES)}
    blocks = H.reshape(out, size, out, size)
    trace, largest = float(H.trace()), float(torch.linalg.eigvalsh(H)[-1])
    rows = [float(W[j] @ blocks[j, :, j] @ W[j]) for j in range(out)]
    columns = [float(W[:, i] @ blocks[:, i, :, i] @ W[:, i]) for i in range(size)]
    relative = sum(float(W[s] @ W[t]) * float(blocks[s, :, t].trace()) for s in range(out) for t in range(out))
    return {
        "weight_norm_squared": norm2,
        "lambda_max": largest,
        "trace": trace,
        "kappa": norm2 * largest,
        "kappa_tau": norm2 * trace,
        "rho": max(rows),
        "rho_sigma": sum(rows),
        "rho_neurons": rows,
        "rho_columns": max(columns),
        "rho_columns_sigma": sum(columns),
        "rho_column_neurons": columns,
        "relative_flatness": relative,
    }


def network_flatness(layers: list[Block]) -> Block:
    def every(name: str) -> list[float]:
        return [layer[name] for layer in layers if layer[name] is not None]

    return {
        "kappa_max": max(every("kappa")),
        "kappa_sum": sum(every("kappa")),
        "kappa_tau_max": max(every("kappa_tau")),
        "kappa_tau_sum": sum(every("kappa_tau")),
        "rho_max": max(every("rho")),
        "rho_sum": sum(every("rho_sigma")),
        "rho_columns_max": max(every("rho_columns")),
        "rho_columns_sum": sum(every("rho_columns_sigma")),
        "relative_flatness_sum": sum(every("relative_flatness")),
        "lambda_max": max(every("lambda_max")),
        "lambda_max_sum": sum(every("lambda_max")),
        "trace_max": max(every("trace")),
        "trace_sum": sum(every("trace")),
    }
