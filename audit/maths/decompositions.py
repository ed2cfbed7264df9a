"""Singular values and eigenvalues: of many small matrices at once, and what a local map's volume and rank follow from.

A Jacobian K = J W of a layer has as many singular values as the network has scores, and J Rᵀ with Wᵀ = Q R has the same
ones at a fraction of the width. The Gram matrix gives them fast, but squares their spread: where the smallest would
lose digits, the matrix itself is factored (QR, then SVD of the small triangle).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from audit.maths.blocks import row_blocks

SQUARED_SPREAD = 1e-4  # λ_min/λ_max of the Gram matrix below which its eigenvalues are not good to 1e-11
VOLUME_SPREAD = 1e-6  # … below which the sum of their logarithms is not good to 1e-10
DROWNED = 1e-11  # λ_min/λ_max of the Gram matrix that rounding alone may bring about
SMALLEST_SQUARE = 1e-200  # below it, and above its inverse, a matrix is scaled before it is squared


@dataclass(frozen=True)
class LocalMap:
    """What the Jacobian of C scores does around each of n samples, float64."""

    largest: Tensor  # [n]  ‖K‖₂
    frobenius: Tensor  # [n]  ‖K‖_F
    log_volume: Tensor  # [n]  ½ ln det(K Kᵀ); −inf where the rank is below C
    rank: Tensor  # [n]  int64
    dimension: Tensor  # [n]  (Σλ)²/Σλ² over the eigenvalues λ of K Kᵀ; nan where K = 0


def local_map(K: Tensor, columns: int, epsilon: float, gram: Tensor | None = None) -> LocalMap:
    """What n Jacobians K [n, C, r] do around their samples: norms, volume, rank and dimension, [n] each.

    `columns`: the width of K before any QR made it narrower, and `epsilon`, the rounding unit of the arithmetic behind
    it, say which singular values count as zero. `gram`: K Kᵀ [n, C, C], where it is at hand.

    >>> found = local_map(torch.tensor([[[3.0, 0.0], [0.0, 4.0]]]), columns=2, epsilon=1e-16)
    >>> found.largest, found.log_volume.exp(), found.rank
    (tensor([4.], dtype=torch.float64), tensor([12.], dtype=torch.float64), tensor([2]))
    """
    C = K.shape[1]
    K, gram, scale = _gram(K.double(), gram)
    lam = eigvalsh(gram).clamp(min=0)
    top = lam[:, -1]
    threshold = max(C, columns) * epsilon
    log_volume, rank = _volume_and_rank(K, lam, threshold)
    shares = lam / top[:, None]  # relative to the largest: squares of the values themselves may leave the range
    total = shares.sum(1)
    return LocalMap(
        largest=top.sqrt() * scale,
        frobenius=gram.diagonal(dim1=1, dim2=2).sum(1).sqrt() * scale,
        log_volume=torch.where(rank == C, log_volume + C * scale.log(), -torch.inf),
        rank=rank,
        dimension=total.square() / shares.square().sum(1),
    )


def _volume_and_rank(K: Tensor, lam: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Σ ln s and the number of singular values above `threshold` times the largest, from the eigenvalues of K Kᵀ.

    Where these spread widely, Σ ln s is taken from the diagonal of R in Kᵀ = Q R. The rank can be in doubt only where
    the smallest eigenvalue drowns in rounding: there R's own singular values decide.
    """
    n, C, width = K.shape
    log_volume, rank = lam.log().sum(1) / 2, torch.full((n,), C, device=K.device)
    spread = lam[:, 0] / lam[:, -1]
    near = 4 * threshold**2  # in single precision a rank is in doubt long before an eigenvalue drowns
    hard = ~(spread >= max(VOLUME_SPREAD, near))  # also where K = 0 and the ratio does not exist
    if not bool(hard.any()):
        return log_volume, rank
    R = torch.linalg.qr(K[hard].mT, mode="r").R
    if width >= C:
        log_volume[hard] = R.diagonal(dim1=1, dim2=2).abs().log().sum(1)
    doubtful = ~(spread[hard] >= max(DROWNED, near))
    s = svdvals(R[doubtful])
    ranks = rank[hard]
    ranks[doubtful] = (s > threshold * s[:, :1]).sum(1)
    rank[hard] = ranks
    return log_volume, rank


def singular_values(K: Tensor) -> Tensor:
    """Singular values [n, min(C, D)] of K [n, C, D], descending, float64, each good to about 1e-11 of itself.

    >>> singular_values(torch.tensor([[[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]]))
    tensor([[4., 3.]], dtype=torch.float64)
    """
    K = K.double()
    if K.shape[1] > K.shape[2]:
        K = K.mT
    K, gram, scale = _gram(K)
    lam = eigvalsh(gram).clamp(min=0).flip(1)
    s = lam.sqrt()
    hard = lam[:, -1] < SQUARED_SPREAD * lam[:, 0]
    if bool(hard.any()):
        s[hard] = svdvals(torch.linalg.qr(K[hard].mT, mode="r").R)
    values: Tensor = s * scale[:, None]
    return values


def centred_log_volume(K: Tensor, gram: Tensor, largest: Tensor, columns: int, epsilon: float) -> Tensor:
    """½ ln det of B K (B K)ᵀ [n], B = `centring`; −inf where its rank is below C − 1. gram = K Kᵀ, largest = ‖K‖₂ [n].

    Rounding of B K is relative to K itself, whose rows may be nearly equal: a singular value is zero if it is so beside
    `largest`. Taken from B (K Kᵀ) Bᵀ, and from B K where that has too few digits.
    """
    B, threshold = centring(K.shape[1]).to(K.device), max(K.shape[1], columns) * epsilon
    gram = gram.where(gram.isfinite().all(2, keepdim=True).all(1, keepdim=True), 0.0)
    lam = eigvalsh(B @ gram @ B.T)
    enough = lam[:, 0] >= max(VOLUME_SPREAD, 4 * threshold**2) * largest.square()
    hard = ~(enough & (lam[:, 0] > SMALLEST_SQUARE) & (largest.square() < 1 / SMALLEST_SQUARE))
    log_volume: Tensor = lam.clamp(min=SMALLEST_SQUARE).log().sum(1) / 2
    if bool(hard.any()):
        s = singular_values(B @ K[hard].double())
        full = (s[:, -1] > threshold * largest[hard]) & (K.shape[2] >= len(B))
        log_volume[hard] = torch.where(full, s.log().sum(1), -torch.inf)
    return log_volume


def _gram(K: Tensor, gram: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """K/scale, its Gram matrix and scale [n]: 1, but where squares of tiny or huge entries would leave the range."""
    gram = K @ K.mT if gram is None else gram
    top = gram.diagonal(dim1=1, dim2=2).amax(1)
    safe = (top > SMALLEST_SQUARE) & (top < 1 / SMALLEST_SQUARE)
    if bool(safe.all()):
        return K, gram, torch.ones_like(top)
    largest = K.abs().amax((1, 2))
    scale = torch.where(safe | (largest == 0), 1.0, largest)
    K = K / scale[:, None, None]
    return K, K @ K.mT, scale


def largest_singular_value(K: Tensor) -> Tensor:
    """‖K‖₂ [n] of K [n, C, D], float64: squaring costs the largest one no digits.

    >>> largest_singular_value(torch.tensor([[[3.0, 4.0]]]))
    tensor([5.], dtype=torch.float64)
    """
    K = K.double()
    _, gram, scale = _gram(K if K.shape[1] <= K.shape[2] else K.mT)
    largest: Tensor = eigvalsh(gram)[:, -1].clamp(min=0).sqrt() * scale
    return largest


def norm(M: Tensor) -> float:
    """‖M‖ of a matrix or kernel, in double precision, whatever its size.

    >>> norm(torch.tensor([[3.0, 4.0]]))
    5.0
    """
    return float(torch.stack([M[rows].double().norm() for rows in row_blocks(M)]).norm())


def narrow_factor(W: Tensor) -> Tensor:
    """Rᵀ [out, out] of Wᵀ = Q R, for W with more columns than rows: J Rᵀ has the singular values of J W for every J."""
    factor: Tensor = torch.linalg.qr(W.T, mode="r").R.T
    return factor


def centring(C: int) -> Tensor:
    """B [C−1, C] with orthonormal rows, all orthogonal to (1, …, 1): Helmert's matrix.

    >>> centring(2)
    tensor([[ 0.7071, -0.7071]], dtype=torch.float64)
    """
    B = torch.tril(torch.ones(C - 1, C, dtype=torch.float64))
    k = torch.arange(1, C, dtype=torch.float64)
    B[torch.arange(C - 1), torch.arange(1, C)] = -k
    return B / (k * (k + 1)).sqrt()[:, None]


def smallest_singular_value(X: Tensor) -> Tensor:
    """σ_min [n] of X [n, T, in] as a map on T tokens: 0 where the tokens of a sample are linearly dependent."""
    _, T, width = X.shape
    if T == 1:
        norm: Tensor = torch.linalg.vector_norm(X.double(), dim=(1, 2))
        return norm
    if width < T:
        return torch.zeros(len(X), dtype=torch.float64, device=X.device)
    s = singular_values(X) if X.dtype == torch.float64 else _of_single_precision(X)
    independent = s[:, -1] > max(T, width) * torch.finfo(X.dtype).eps * s[:, 0]
    smallest: Tensor = s[:, -1] * independent
    return smallest


def _of_single_precision(K: Tensor) -> Tensor:
    """Singular values [n, C] of K [n, C, D], C ≤ D, descending, float64, from the Gram matrix alone.

    Squared in double precision they lose less than what K's own rounding has left open.
    """
    _, gram, scale = _gram(K.double())
    values: Tensor = eigvalsh(gram).clamp(min=0).flip(1).sqrt() * scale[:, None]
    return values


# Eigenvalues and singular values as torch finds them; a failure says whether the matrix itself was not finite.


Found = TypeVar("Found")


class InfiniteMatrix(ArithmeticError):
    """A matrix to be decomposed holds infinity or NaN: some product before it was too large to be held."""


def eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [..., n], ascending, and eigenvectors [..., n, n] of symmetric A [..., n, n]."""
    values, vectors = _of_finite(torch.linalg.eigh, A)
    return values, vectors


def eigvalsh(A: Tensor) -> Tensor:
    """Eigenvalues [..., n], ascending, of symmetric A [..., n, n].

    >>> eigvalsh(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    values: Tensor = _of_finite(torch.linalg.eigvalsh, A)
    return values


def svd(A: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, singular values, descending, and Vᵀ of A [..., m, n], as `torch.linalg.svd` gives them."""
    U, sizes, Vt = _of_finite(partial(torch.linalg.svd, full_matrices=full_matrices), A)
    return U, sizes, Vt


def svdvals(A: Tensor) -> Tensor:
    """Singular values, descending, of A [..., m, n]."""
    sizes: Tensor = _of_finite(torch.linalg.svdvals, A)
    return sizes


def _of_finite(work: Callable[[Tensor], Found], A: Tensor) -> Found:
    try:
        return work(A)
    except LinAlgError as error:
        if bool(A.isfinite().all()):
            raise  # the matrix has another fault, which is ours
        raise InfiniteMatrix("a matrix to be decomposed is not finite") from error
