"""The Fisher determinant the slow way: every gradient formed by autograd, one sample after the other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def sample_loss(network: nn.Module, x: Tensor, y: Tensor, task: str, normalized: bool = False) -> Tensor:
    f = network(x[None]).reshape(-1)
    if normalized:
        f = f / (0.04 * f.norm())
    if task == "regression":  # −ln of a Gaussian of variance 1 around f, but for a constant
        return -torch.distributions.Normal(f, 1.0).log_prob(y).sum()
    if task == "binary":
        return F.binary_cross_entropy_with_logits(f[0], y.double())
    others = torch.cat([f[:y], f[y + 1 :]]) - f[y]  # −ln p_y without ever forming 1 − p_y
    return F.softplus(others.logsumexp(0), threshold=100)


def gradients(
    network: nn.Module, x: Tensor, y: Tensor, task: str, names: list[str] | None = None, normalized: bool = False
) -> Tensor:
    """[n, P] over the named parameters, or all."""
    parameters = [p for name, p in network.named_parameters() if names is None or name in names]
    rows = []
    for x_i, y_i in zip(x, y, strict=True):
        for p in parameters:
            p.requires_grad_()
        with sdpa_kernel(SDPBackend.MATH):
            parts = torch.autograd.grad(sample_loss(network, x_i, y_i, task, normalized), parameters, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, parameters, strict=True)]
        rows.append(torch.cat([part.flatten() for part in filled]))
    network.requires_grad_(False)
    return torch.stack(rows)


def log_determinant(G: Tensor) -> float:
    """ln det(G Gᵀ) through the singular values of G with unit rows, so that confident samples keep their digits."""
    norms = G.norm(dim=1)
    if (norms == 0).any() or len(G) > G.shape[1]:
        return -torch.inf
    values = torch.linalg.svdvals(G / norms[:, None])
    if values[-1] < 1e-10:  # not good to six digits: rounding is 1e-16 of the unit rows
        return -torch.inf
    return float(2 * norms.log().sum() + 2 * values.log().sum())


def robustness(network: nn.Module, x: Tensor, task: str) -> float:
    """mean ‖∂p/∂x‖₂², p the softmax (one score: of the score and 0)."""

    def probabilities(value: Tensor) -> Tensor:
        f = network(value[None]).reshape(-1)
        return torch.cat([f, 0 * f]).softmax(0) if task == "binary" else f.softmax(0)

    norms = []
    for x_i in x:
        J = torch.autograd.functional.jacobian(probabilities, x_i)
        norms.append(float(torch.linalg.matrix_norm(J.reshape(len(J), -1), 2)) ** 2)
    return sum(norms) / len(norms)
