"""Flatness the slow way: the whole Hessian of each layer by differentiating the loss twice, then the definitions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel


def mean_loss(f: Tensor, y: Tensor, task: str) -> Tensor:
    """Of scores f [n, C]."""
    if task == "classification":
        return nn.functional.cross_entropy(f, y)
    if task == "binary":
        return nn.functional.binary_cross_entropy_with_logits(f[:, 0], y.double())
    return 0.5 * ((f - y) ** 2).sum(1).mean()


def hessian(network: nn.Module, path: str, x: Tensor, y: Tensor, task: str = "classification") -> Tensor:
    """H [out, in, out, in] of the mean loss in the weight of the module at `path`."""
    weight = network.get_submodule(path).weight.detach()
    out, size = len(weight), weight[0].numel()
    name = f"{path}.weight" if path else "weight"

    def loss(W: Tensor) -> Tensor:
        f = functional_call(network, {name: W.reshape(weight.shape)}, (x,))
        return mean_loss(f.reshape(len(x), -1), y, task)

    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no second derivative
        return torch.autograd.functional.hessian(loss, weight.reshape(out, size))


def layer_numbers(W: Tensor, H: Tensor) -> dict[str, float | list[float]]:
    """The definitions, read off H and W neuron by neuron."""
    out, size = W.shape
    norm2 = float((W**2).sum())
    matrix = H.reshape(out * size, out * size)
    trace, lambda_max = float(matrix.trace()), float(torch.linalg.eigvalsh(matrix)[-1])
    rows = [float(W[j] @ H[j, :, j, :] @ W[j]) for j in range(out)]
    columns = [float(W[:, k] @ H[:, k, :, k] @ W[:, k]) for k in range(size)]
    relative = sum(float(W[s] @ W[t]) * float(H[s, :, t, :].trace()) for s in range(out) for t in range(out))
    return {
        "weight_norm_squared": norm2,
        "lambda_max": lambda_max,
        "trace": trace,
        "kappa": norm2 * lambda_max,
        "kappa_tau": norm2 * trace,
        "rho": max(rows),
        "rho_sigma": sum(rows),
        "rho_neurons": rows,
        "rho_columns": max(columns),
        "rho_columns_sigma": sum(columns),
        "rho_column_neurons": columns,
        "relative_flatness": relative,
    }
