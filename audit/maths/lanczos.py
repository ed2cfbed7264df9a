"""The largest eigenpairs of a symmetric operator, by block Lanczos iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from audit.maths.blocks import KRYLOV_BASIS
from audit.maths.decompositions import eigh, svd

BLOCK = 2  # directions pushed through the network at once when several eigenpairs are wanted
LEAST_STEPS = 10  # before any convergence is believed: an early small residual may belong to λ₂
MOST_STEPS = 500
SELDOM = 160  # vectors in the basis beyond which convergence is looked at in every fourth step: it takes an `eigh`
INDISTINCT = 1e-6  # relative distance below which two eigenvalues count as one
OWN = 2e-5  # residual over a pair's own eigenvalue: far below the largest one, directions are to be eigenvectors, too
MARGIN = {torch.float64: 1.0, torch.float32: 0.5}  # share of that which is left to the iteration: rounding adds to it
FLOOR = {torch.float64: 1e-14, torch.float32: 1e-8}  # residuals, over the largest |eigenvalue|, that are rounding
EXHAUSTED = {torch.float64: 1e-10, torch.float32: 1e-6}  # share of H q outside the basis that is nothing new
FAINT = 1e-3  # share of H q outside the basis below which its direction is not known to rounding
SINGLE_NOISE = 1e-6  # residuals that single precision cannot tell from zero
SHORT = 512  # numbers that are summed up in single precision; longer sums lose a digit and more


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


def iterated(
    hessian: Symmetric, k: int, tolerance: float, seed: int, values_only: bool, block: int = BLOCK
) -> EigenPairs:
    """The algebraically largest k eigenpairs of `hessian`, by block Lanczos iteration from a random start (`seed`).

    Each residual ‖H v − λ v‖ is at most as `allowed` under `tolerance`; with `values_only`, `tolerance` is asked of the
    eigenvalues alone, which takes fewer steps. `block`: directions at once; more where an eigenspace is as wide.
    """
    block = min(k, block)
    while True:
        pairs = _lanczos(hessian, k, block, tolerance, seed, values_only)
        if block == 1 or not _crowded(pairs.values, block):
            return pairs
        block = min(k, 4 * block)  # an eigenspace as wide as the block may be wider still: a wider one sees it whole
        if block == k:  # no wider block is of use
            return _lanczos(hessian, k, block, tolerance, seed, values_only)


def _crowded(values: Tensor, block: int) -> bool:
    """Whether some `block` of the eigenvalues are equal, and not merely zero."""
    scale = scale_of(values)
    for first, last in zip(values, values[block - 1 :], strict=False):
        if abs(first - last) <= INDISTINCT * scale and abs(last) > INDISTINCT * scale:
            return True
    return False


def scale_of(values: Tensor) -> Tensor:
    """The largest |eigenvalue| of values [k], or 1 where all are zero.

    >>> scale_of(torch.tensor([1.0, -3.0]))
    tensor(3.)
    """
    largest = values.abs().max()
    return largest if largest > 0 else torch.ones_like(largest)


def allowed(values: Tensor, tolerance: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """The largest residual of each pair, over the largest |eigenvalue|: `tolerance`, and `OWN` of its own value."""
    return (OWN * values.abs() / scale_of(values)).clamp(max=tolerance).clamp(min=FLOOR[dtype])


def _lanczos(hessian: Symmetric, k: int, block: int, tolerance: float, seed: int, values_only: bool) -> EigenPairs:
    """Block Lanczos with full reorthogonalisation and thick restarts.

    Q [m, dim] is the basis and T = Q H Qᵀ. The part of H Q outside the basis lies along the newest block: with
    H q_new = Qᵀ T_new + Bᵀ-combinations of the next block, the residual of the Ritz vector Qᵀ y is ‖B y_new‖.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(hessian.dim, block, generator=generator, dtype=torch.float64)
    new = torch.linalg.qr(start)[0].T.to(hessian.dtype)
    numbers = min(KRYLOV_BASIS, hessian.room // new.element_size())
    most = min(hessian.dim, max(k + 8 * block + 2, numbers // hessian.dim))  # vectors in the basis
    size, T, near = 0, torch.zeros(0, 0, dtype=torch.float64), 0
    enough = _values_known if values_only else _pairs_known
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
        ripe = step >= LEAST_STEPS and size > k and (size <= SELDOM or step % 4 == 0)
        if not (done or ripe or size + width > most):
            continue
        theta, Y = (part.flip(-1) for part in eigh(T))
        residuals = (B @ Y[-width:]).norm(dim=0) / scale_of(theta)
        if done or (ripe and enough(theta, residuals, k, tolerance, hessian.dtype)):
            break
        if size + width > most:
            keep = min(size - 1, (k + most) // 2)
            basis[:keep], size, near = Y[:, :keep].T.to(Q) @ Q, keep, 0
            T = torch.diag(theta[:keep])
    vectors = (Y[:, :k].T.to(Q) @ Q).reshape(-1, *hessian.shape)
    return EigenPairs(theta[:k].clone(), vectors, residuals[:k].clone(), step)


def _pairs_known(theta: Tensor, residuals: Tensor, k: int, tolerance: float, dtype: torch.dtype) -> bool:
    return bool((residuals <= MARGIN[dtype] * allowed(theta, tolerance, dtype))[:k].all())


def _values_known(theta: Tensor, residuals: Tensor, k: int, tolerance: float, dtype: torch.dtype) -> bool:
    tolerance *= MARGIN[dtype]
    if bool((residuals[:k] <= max(tolerance, SINGLE_NOISE)).all()):
        return True
    if bool((residuals[:k] > 1e-3).any()):
        return False
    gap = (theta[:k] - theta[k]) / scale_of(theta) - residuals[k]  # to what lies below the wanted ones
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
    inside = P.new_zeros(len(Q), len(P), dtype=torch.float64)
    for part in (slice(near, None), slice(None), slice(None)):
        found = _inner(P, Q[part])
        P, before = torch.addmm(P, found.to(P), Q[part], alpha=-1), size
        inside[part] += found.T
        size = P.norm(dim=1).max()
        if part.start is None and size > before / 2:
            break
    columns, B = torch.linalg.qr(P.double().T)  # the length of a long vector has few digits in single precision
    N = columns.T.to(P.dtype)
    if not bool((B.diagonal().abs() > FAINT * scale).all()):
        N, B = _with_random(P, Q, scale, generator)
    return N, B.double().cpu(), inside.cpu()


def _inner(P: Tensor, Q: Tensor) -> Tensor:
    """P Qᵀ [b, m] of long vectors, in double precision: in single precision their sums are the iteration's noise."""
    if P.dtype == torch.float64:
        return P @ Q.T
    whole = P.shape[1] // SHORT * SHORT
    short_P, short_Q = (part[:, :whole].view(len(part), -1, SHORT) for part in (P, Q))  # [b or m, pieces, SHORT]
    pieces = short_P.transpose(0, 1) @ short_Q.permute(1, 2, 0)  # [pieces, b, m]
    return pieces.sum(0, dtype=torch.float64) + P[:, whole:] @ Q[:, whole:].T


def _with_random(P: Tensor, Q: Tensor, scale: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """N and B where P is faint in some direction."""
    U, size, N = svd(P, full_matrices=False)
    real = size > EXHAUSTED[P.dtype] * scale
    N, B = N[real], (U * size).T[real]
    missing = max(0, min(len(P), P.shape[1] - len(Q)) - len(N))
    fresh = torch.randn(missing, P.shape[1], generator=generator, dtype=torch.float64).to(P)
    N = torch.cat([N, fresh])
    for _ in range(2):  # what is small, or random, is not yet ⟂ Q to rounding
        N = torch.linalg.qr((N - (N @ Q.T) @ Q).T)[0].T
    return N, torch.cat([B, B.new_zeros(missing, len(P))])
