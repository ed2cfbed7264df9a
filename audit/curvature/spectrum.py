"""The eigenpairs of a layer's Hessian: all of them by `eigh`, or the largest by Lanczos iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from audit.curvature.hessian import DENSE_LIMIT, LayerHessian

__all__ = ["DENSE_LIMIT", "EigenPairs", "LayerHessian", "all_eigenpairs", "top_eigenpairs"]

SMALL = 400  # weights up to which eigh of the matrix is quicker than any iteration
BLOCK = 4  # directions pushed through the network at once when several eigenpairs are wanted
LEAST_STEPS = 10  # before any convergence is believed: an early small residual may belong to λ₂
MOST_STEPS = 500
BASIS_NUMBERS = 1 << 25  # numbers in the Krylov basis (256 MB) beyond which it is restarted from its best vectors
EXHAUSTED = 1e-10  # share of H q outside the basis below which there is nothing new in it
SAME = 1e-6  # relative distance below which two eigenvalues count as one
SINGLE_NOISE = 1e-6  # residuals that single precision cannot tell from zero


class Symmetric(Protocol):
    """Anything that multiplies matrices V [k, out, in] by a symmetric operator."""

    @property
    def dim(self) -> int:
        """Rows of H."""

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""

    def times(self, V: Tensor) -> Tensor:
        """H V."""


@dataclass(frozen=True)
class EigenPairs:
    """Algebraically largest eigenvalues, in descending order, and how well they are known."""

    values: Tensor  # [k]
    vectors: Tensor  # [k, out, in], orthonormal
    residuals: Tensor  # [k]  ‖H v − λ v‖ over the largest |eigenvalue| seen
    iterations: int  # walks over the samples; 0 where the matrix itself was diagonalised


def all_eigenpairs(hessian: LayerHessian) -> EigenPairs:
    """The complete eigenbasis, by `eigh`."""
    H = hessian.dense()
    values, vectors = torch.linalg.eigh(H)
    values, vectors = values.flip(0), vectors.flip(1)
    residuals = (H @ vectors - vectors * values).norm(dim=0) / _scale(values)
    return EigenPairs(values, vectors.T.reshape(-1, *hessian.shape).contiguous(), residuals, 0)


def top_eigenpairs(
    hessian: LayerHessian, k: int, tolerance: float = 1e-6, seed: int = 0, values_only: bool = False
) -> EigenPairs:
    """The k largest eigenpairs (all of them where there are fewer), each residual at most `tolerance`.

    With `values_only`, `tolerance` is asked of the eigenvalues alone. By Kato and Temple the error of a Ritz value is
    at most ‖residual‖² over its distance to the rest of the spectrum, so fewer iterations will do, and rougher ones:
    they run in single precision where they can, and the eigenvalues are then taken in double precision.
    """
    k = min(k, hessian.dim)
    if hessian.dim <= SMALL or (hessian.dim <= DENSE_LIMIT and 4 * k >= hessian.dim):
        pairs = all_eigenpairs(hessian)
        return EigenPairs(pairs.values[:k], pairs.vectors[:k], pairs.residuals[:k], 0)
    single = hessian.single() if values_only else None
    if single is None:
        return _iterated(hessian, k, tolerance, seed, values_only)
    return _polished(hessian, _iterated(single, k, tolerance, seed, values_only))


def _polished(hessian: LayerHessian, rough: EigenPairs) -> EigenPairs:
    """Eigenvalues and residuals of `rough` in double precision, at the price of one product."""
    V = rough.vectors.flatten(1)
    H_V = hessian.times(rough.vectors).flatten(1)
    T = V @ H_V.T
    values, Y = (part.flip(-1) for part in torch.linalg.eigh((T + T.T) / 2))
    V, H_V = Y.T @ V, Y.T @ H_V
    residuals = (H_V - values[:, None] * V).norm(dim=1) / _scale(values)
    return EigenPairs(values, V.reshape(rough.vectors.shape), residuals, rough.iterations + 1)


def _iterated(hessian: Symmetric, k: int, tolerance: float, seed: int, values_only: bool) -> EigenPairs:
    block = min(k, BLOCK)
    while True:
        pairs = _lanczos(hessian, k, block, tolerance, seed, values_only)
        if block == 1 or not _crowded(pairs.values, block):
            return pairs
        block *= 2  # an eigenspace as wide as the block may be wider still: a wider block sees it whole


def _crowded(values: Tensor, block: int) -> bool:
    """Whether some `block` of the eigenvalues are equal, and not merely zero."""
    scale = _scale(values)
    for first, last in zip(values, values[block - 1 :], strict=False):
        if abs(first - last) <= SAME * scale and abs(last) > SAME * scale:
            return True
    return False


def _scale(values: Tensor) -> Tensor:
    """The largest |eigenvalue|, or 1 where all are zero."""
    largest = values.abs().max()
    return largest if largest > 0 else torch.ones_like(largest)


def _lanczos(hessian: Symmetric, k: int, block: int, tolerance: float, seed: int, values_only: bool) -> EigenPairs:
    """Block Lanczos with full reorthogonalisation and thick restarts.

    Q [m, dim] is the basis and T = Q H Qᵀ. The part of H Q outside the basis lies along the newest block: with
    H q_new = Qᵀ T_new + Bᵀ-combinations of the next block, the residual of the Ritz vector Qᵀ y is ‖B y_new‖.
    """
    generator = torch.Generator().manual_seed(seed)
    new = torch.linalg.qr(torch.randn(hessian.dim, block, generator=generator, dtype=torch.float64))[0].T
    most = max(4 * k + 4 * block, BASIS_NUMBERS // hessian.dim)  # vectors in the basis
    Q, T = new[:0], new.new_zeros(0, 0)
    for step in range(1, MOST_STEPS + 1):
        H_new = hessian.times(new.reshape(-1, *hessian.shape)).flatten(1)
        Q = torch.cat([Q.to(H_new.device), new.to(H_new.device)])
        T = _bordered(T.to(Q.device), Q @ H_new.T)
        width = len(new)
        new, B = _outside(H_new, Q, generator)
        theta, Y = (part.flip(-1) for part in torch.linalg.eigh(T))
        residuals = (B @ Y[-width:]).norm(dim=0) / _scale(theta)
        done = len(Q) >= hessian.dim
        if done or (step >= LEAST_STEPS and len(Q) > k and _converged(theta, residuals, k, tolerance, values_only)):
            break
        if len(Q) + width > most:
            keep = min(len(Q) - 1, 2 * k + block)
            Q, T = Y[:, :keep].T @ Q, torch.diag(theta[:keep])
    vectors = (Y[:, :k].T @ Q).reshape(-1, *hessian.shape)
    return EigenPairs(theta[:k].clone(), vectors, residuals[:k].clone(), step)


def _converged(theta: Tensor, residuals: Tensor, k: int, tolerance: float, values_only: bool) -> bool:
    if bool((residuals[:k] <= (max(tolerance, SINGLE_NOISE) if values_only else tolerance)).all()):
        return True
    if not values_only or bool((residuals[:k] > 1e-3).any()):
        return False
    gap = (theta[:k] - theta[k]) / _scale(theta) - residuals[k]  # to what lies below the wanted ones
    return bool((residuals[:k].square() <= tolerance * gap).all())


def _bordered(T: Tensor, columns: Tensor) -> Tensor:
    """T with new last columns [m, b] and, by symmetry, new last rows."""
    m, b = columns.shape
    grown = T.new_zeros(m, m)
    grown[: m - b, : m - b] = T
    grown[:, m - b :], grown[m - b :, :] = columns, columns.T
    corner = columns[m - b :]
    grown[m - b :, m - b :] = (corner + corner.T) / 2
    return grown


def _outside(P: Tensor, Q: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What P [b, dim] adds to the basis Q: N [≤ b, dim] orthonormal and ⟂ Q, and B: Pᵀ y outside Q has length ‖B y‖.

    Where P adds nothing (the Krylov space is exhausted), random directions take over, with B = 0 there.
    """
    scale = P.norm(dim=1).max()
    for _ in range(2):  # twice is enough
        P = P - (P @ Q.T) @ Q
    U, size, N = torch.linalg.svd(P, full_matrices=False)
    real = size > EXHAUSTED * scale
    N, B = N[real], (U * size).T[real]
    if bool((size > 1e-3 * scale).all()):
        return N, B
    missing = max(0, min(len(P), P.shape[1] - len(Q)) - len(N))
    fresh = torch.randn(missing, P.shape[1], generator=generator, dtype=torch.float64).to(P.device)
    N = torch.cat([N, fresh])
    for _ in range(2):  # what is small, or random, is not yet ⟂ Q to rounding
        N = torch.linalg.qr((N - (N @ Q.T) @ Q).T)[0].T
    return N, torch.cat([B, B.new_zeros(missing, len(P))])
