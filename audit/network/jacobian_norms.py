"""‖K‖₂ of every sample's Jacobian K = ∂f/∂x without forming it: Lanczos steps on K Kᵀ, all samples of a batch at once.

A step takes K v = K Kᵀ w: one backward pass for Kᵀ w, and one through the graph of a backward pass for K v, since Kᵀ w
is linear in w and its derivative along w is K. The largest Ritz value θ never exceeds λ_max of K Kᵀ, and an eigenvalue
lies within its residual, so that half the residual over θ bounds the relative error of √θ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.decompositions import eigh

LEAST_STEPS = 6  # before convergence is believed: an early small residual may belong to another eigenvalue
MOST_STEPS = 24
TOLERANCE = 1e-3  # relative error of a norm

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Norms:
    """Of n Jacobians."""

    largest: Tensor  # [n]  ‖K‖₂, float64
    error: Tensor  # [n]  bound of its relative error


@dataclass(frozen=True)
class JacobianProducts:
    """Products with K [C, D] of each of n samples."""

    transposed: Product  # w [n, C] → Kᵀ w [n, D]
    times: Product  # v [n, D] → K v [n, C]


def jacobian_products(f: Tensor, x: Tensor) -> JacobianProducts:
    """Of K = ∂f/∂x for scores f [n, C] and a tensor x [n, …] of their graph, a sample's scores its own x's alone.

    Raises RuntimeError where the network cannot be differentiated twice.
    """
    w = torch.zeros_like(f, requires_grad=True)
    (back,) = torch.autograd.grad(f, x, w, create_graph=True, materialize_grads=True)

    def transposed(values: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(f, x, values.to(f), retain_graph=True, materialize_grads=True)
        return found.flatten(1).double()

    def times(values: Tensor) -> Tensor:
        if not back.requires_grad:  # the scores do not depend on x
            return torch.zeros_like(f, dtype=torch.float64)
        (found,) = torch.autograd.grad(
            back, w, values.to(f).reshape(x.shape), retain_graph=True, materialize_grads=True
        )
        return found.double()

    return JacobianProducts(transposed, times)


def largest_norms(products: JacobianProducts, start: Tensor) -> Norms:
    """‖K‖₂ of every sample, from a random start [n, C], float64.

    >>> K = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]], dtype=torch.float64)
    >>> at_hand = JacobianProducts(lambda w: (w[:, None] @ K)[:, 0], lambda v: (K @ v[..., None])[..., 0])
    >>> largest_norms(at_hand, torch.ones(1, 2, dtype=torch.float64)).largest.round(decimals=6)
    tensor([4.], dtype=torch.float64)
    """
    basis = [start / torch.linalg.vector_norm(start, dim=1, keepdim=True)]
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    most = min(MOST_STEPS, start.shape[1])
    for step in range(1, most + 1):
        v = products.transposed(basis[-1])
        diagonal.append(v.square().sum(1))
        rest = products.times(v)
        for _ in range(2):  # against all vectors, twice: rounding would bring back what is already there
            Q = torch.stack(basis, 1)  # [n, step, C]
            rest = rest - (Q.mT @ (Q @ rest[..., None]))[..., 0]
        beside.append(torch.linalg.vector_norm(rest, dim=1))
        norms = _ritz(diagonal, beside)
        if step == most or (step >= LEAST_STEPS and bool((norms.error <= TOLERANCE).all())):
            break
        basis.append(rest / beside[-1].clamp(min=torch.finfo(torch.float64).tiny)[:, None])
    return norms


def _ritz(diagonal: list[Tensor], beside: list[Tensor]) -> Norms:
    """From the tridiagonal matrix of the steps so far; the last entry of `beside` is what lies outside the basis."""
    T = torch.diag_embed(torch.stack(diagonal, 1))
    if len(diagonal) > 1:
        off = torch.stack(beside[:-1], 1)
        T = T + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = eigh(T)
    top = values[:, -1].clamp(min=0)
    residual = beside[-1] * vectors[:, -1, -1].abs()
    error = torch.where(top > 0, residual / (2 * top), torch.zeros_like(top))
    return Norms(top.sqrt(), error)
