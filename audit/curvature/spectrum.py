"""The eigenpairs of a layer's Hessian: all of them by `eigh`, or the largest by Lanczos iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from audit.curvature.hessian import DENSE_LIMIT, LayerHessian
from audit.curvature.single import SingleHessian

__all__ = ["DENSE_LIMIT", "EigenPairs", "LayerHessian", "all_eigenpairs", "top_eigenpairs"]

SMALL = 400  # weights up to which eigh of the matrix is quicker than any iteration
BLOCK = 2  # directions pushed through the network at once when several eigenpairs are wanted
LEAST_STEPS = 10  # before any convergence is believed: an early small residual may belong to λ₂
MOST_STEPS = 500
ROWS = 512  # eigenvectors whose residuals are taken at once
BASIS_NUMBERS = 1 << 25  # numbers in the Krylov basis beyond which it is restarted from its best vectors
INDISTINCT = 1e-6  # relative distance below which two eigenvalues count as one
EXHAUSTED = {torch.float64: 1e-10, torch.float32: 1e-6}  # share of H q outside the basis that is nothing new
FAINT = 1e-3  # share of H q outside the basis below which its direction is not known to rounding
SINGLE_NOISE = 1e-6  # residuals that single precision cannot tell from zero
SHARPENED = 3  # products in double precision with the first vector, at most
CLOSE = 1e-2  # relative distance of the second eigenvalue below which the first vector is left as it is
FEW = 2  # directions whose products are taken anew in double precision; of more, a mixture is


class Symmetric(Protocol):
    """Anything that multiplies matrices V [k, out, in] by a symmetric operator."""

    @property
    def dim(self) -> int:
        """Rows of H."""

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""

    @property
    def dtype(self) -> torch.dtype:
        """Of what `times` takes and gives."""

    @property
    def room(self) -> int:
        """Bytes that a basis may take."""

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
    values, columns = torch.linalg.eigh(H)
    values, vectors = values.flip(0), columns.T.flip(0)  # a copy, with the vectors as rows
    del columns
    residuals = torch.cat(
        [(V @ H - own[:, None] * V).norm(dim=1) for V, own in zip(vectors.split(ROWS), values.split(ROWS), strict=True)]
    )
    return EigenPairs(values, vectors.reshape(-1, *hessian.shape), residuals / _scale(values), 0)


def top_eigenpairs(
    hessian: LayerHessian, k: int, tolerance: float = 1e-6, seed: int = 0, values_only: bool = False
) -> EigenPairs:
    """The k largest eigenpairs (all of them where there are fewer), each residual at most `tolerance`.

    Iterations run in single precision where they can, and what they found is then judged in double precision. With
    `values_only`, `tolerance` is asked of the eigenvalues alone. By Kato and Temple the error of a Ritz value is at
    most ‖residual‖² over its distance to the rest of the spectrum, so fewer iterations will do.
    """
    k = min(k, hessian.dim)
    if hessian.dim <= SMALL or (hessian.dim <= DENSE_LIMIT and 4 * k >= hessian.dim):
        pairs = all_eigenpairs(hessian)
        return EigenPairs(pairs.values[:k], pairs.vectors[:k], pairs.residuals[:k], 0)
    single = hessian.single()
    if single is not None and single.dim > 4 * k:
        pairs = _in_double(hessian, single, _iterated(single, k, tolerance / 2, seed, values_only), tolerance, seed)
        if values_only or bool((pairs.residuals <= tolerance).all()):
            return pairs
    return _iterated(hessian, k, tolerance, seed, values_only)


def _in_double(
    hessian: LayerHessian, single: SingleHessian, rough: EigenPairs, tolerance: float, seed: int
) -> EigenPairs:
    """`rough` pairs of the Hessian in single precision, with their residuals under the Hessian itself.

    The largest eigenvalue is taken anew. Residuals of many pairs are seen on one sum of all vectors with random signs:
    the square of its residual is, in the mean over signs, the sum of their squares, so none is said to be smaller.
    """
    V = _orthonormal(single.whole(rough.vectors).flatten(1))
    k, walks = len(V), rough.iterations + 1
    if k <= FEW:
        return _ritz(V, hessian.times(V.reshape(k, *hessian.shape)).flatten(1), hessian.shape, walks)
    values = rough.values.to(V) * single.scale
    V, products = _sharpened(hessian, V, values, tolerance)
    values[0], walks = V[0] @ products[-1], walks + len(products)
    signs = torch.randint(2, (k,), generator=torch.Generator().manual_seed(seed)).to(V) * 2 - 1
    mixture = hessian.times((signs @ V).reshape(1, *hessian.shape)).flatten()
    scale = _scale(values)
    residuals = rough.residuals.to(V).clamp(min=(mixture - (signs * values) @ V).norm() / scale)
    residuals[0] = (products[-1] - values[0] * V[0]).norm() / scale
    return EigenPairs(values, V.reshape(k, *hessian.shape), residuals, walks)


def _sharpened(hessian: LayerHessian, V: Tensor, values: Tensor, tolerance: float) -> tuple[Tensor, list[Tensor]]:
    """V [k, dim] with a better first vector, and H times its first vector each time; the last is of the V returned.

    Rounding in single precision is relative to the eigenvalue, so the first vector suffers most. v + (λ − H)⁻¹ r takes
    its residual r away, with the values of the other vectors for H on their span, and 0 for H beyond.
    """
    products: list[Tensor] = []
    for _ in range(SHARPENED):
        products.append(hessian.times(V[:1].reshape(1, *hessian.shape)).flatten())
        largest = V[0] @ products[-1]
        r = products[-1] - largest * V[0]
        gaps = largest - values[1:]
        if r.norm() <= tolerance / 2 * largest or bool((gaps <= CLOSE * largest).any()) or len(products) == SHARPENED:
            break
        inside = V[1:] @ r
        first = V[0] + (inside / gaps) @ V[1:] + (r - inside @ V[1:]) / largest
        V = _orthonormal(torch.cat([first[None] / first.norm(), V[1:]]))
    return V, products


def _orthonormal(V: Tensor) -> Tensor:
    """V [k, dim], whose rows are nearly orthonormal, made so to rounding: L⁻¹ V with V Vᵀ = L Lᵀ."""
    for _ in range(2):
        V = torch.linalg.inv(torch.linalg.cholesky(V @ V.T)) @ V
    return V


def _ritz(V: Tensor, H_V: Tensor, shape: tuple[int, int], iterations: int) -> EigenPairs:
    """The best eigenpairs in the span of V [k, dim]."""
    T = V @ H_V.T
    values, Y = (part.flip(-1) for part in torch.linalg.eigh((T + T.T) / 2))
    V, H_V = Y.T @ V, Y.T @ H_V
    residuals = (H_V - values[:, None] * V).norm(dim=1) / _scale(values)
    return EigenPairs(values, V.reshape(-1, *shape), residuals, iterations)


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
        if abs(first - last) <= INDISTINCT * scale and abs(last) > INDISTINCT * scale:
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
    start = torch.randn(hessian.dim, block, generator=generator, dtype=torch.float64)
    new = torch.linalg.qr(start)[0].T.to(hessian.dtype)
    numbers = min(BASIS_NUMBERS, hessian.room // new.element_size())
    most = min(hessian.dim, max(k + 8 * block + 2, numbers // hessian.dim))  # vectors in the basis
    size, T, near = 0, torch.zeros(0, 0, dtype=torch.float64), 0
    for step in range(1, MOST_STEPS + 1):
        H_new = hessian.times(new.reshape(-1, *hessian.shape)).flatten(1)
        if step == 1:  # where the samples are, the basis is
            basis = H_new.new_empty(most + block, hessian.dim)
        width = len(new)
        basis[size : size + width], size = new, size + width
        Q = basis[:size]
        new, B, inside = _outside(H_new, Q, near, generator)
        T, near = _bordered(T, inside), size - width
        done = size >= hessian.dim
        if not done and (step < LEAST_STEPS or size <= k) and size + width <= most:
            continue
        theta, Y = (part.flip(-1) for part in torch.linalg.eigh(T))
        residuals = (B @ Y[-width:]).norm(dim=0) / _scale(theta)
        if done or (step >= LEAST_STEPS and size > k and _converged(theta, residuals, k, tolerance, values_only)):
            break
        if size + width > most:
            keep = min(size - 1, (k + most) // 2)
            basis[:keep], size, near = Y[:, :keep].T.to(Q) @ Q, keep, 0
            T = torch.diag(theta[:keep])
    vectors = (Y[:, :k].T.to(Q) @ Q).reshape(-1, *hessian.shape)
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


def _outside(P: Tensor, Q: Tensor, near: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """What P [b, dim] adds to the basis Q: N [≤ b, dim] orthonormal and ⟂ Q; B: Pᵀ y outside Q has length ‖B y‖; Q Pᵀ.

    P lies in the rows of Q from `near` on, up to rounding, which a second pass over all of Q takes away, and a third
    where that took away most. Where P adds nothing (the Krylov space is exhausted), random directions take over, with
    B = 0 there.
    """
    size = scale = P.norm(dim=1).max()
    inside = P.new_zeros(len(Q), len(P))
    for part in (slice(near, None), slice(None), slice(None)):
        found = Q[part] @ P.T
        P, before = torch.addmm(P, found.T, Q[part], alpha=-1), size
        inside[part] += found
        size = P.norm(dim=1).max()
        if part.start is None and size > before / 2:
            break
    columns, B = torch.linalg.qr(P.double().T)  # the length of a long vector has few digits in single precision
    N = columns.T.to(P.dtype)
    if not bool((B.diagonal().abs() > FAINT * scale).all()):
        N, B = _with_random(P, Q, scale, generator)
    return N, B.double().cpu(), inside.double().cpu()


def _with_random(P: Tensor, Q: Tensor, scale: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """N and B where P is faint in some direction."""
    U, size, N = torch.linalg.svd(P, full_matrices=False)
    real = size > EXHAUSTED[P.dtype] * scale
    N, B = N[real], (U * size).T[real]
    missing = max(0, min(len(P), P.shape[1] - len(Q)) - len(N))
    fresh = torch.randn(missing, P.shape[1], generator=generator, dtype=torch.float64).to(P)
    N = torch.cat([N, fresh])
    for _ in range(2):  # what is small, or random, is not yet ⟂ Q to rounding
        N = torch.linalg.qr((N - (N @ Q.T) @ Q).T)[0].T
    return N, torch.cat([B, B.new_zeros(missing, len(P))])
