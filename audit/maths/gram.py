"""The largest eigenpairs of A Aᵀ/n from the columns of A that carry the energy.

A Gauss–Newton Hessian in the weights W [out, in] of one layer is H = A Aᵀ/n, one column Σ_t q_t x_tᵀ for each sample
and each direction of its output curvature. H and the Gram matrix of the columns, Aᵀ A, have the same eigenvalues, and
the Gram matrix does not know out·in. A trained network has most of its energy Tr H = Σ ‖column‖²/n in few columns.
What is left out is positive semidefinite, so each eigenvalue lies between that of the kept columns and that plus the
trace left out: a bound, not an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.blocks import DENSE_LIMIT, row_blocks
from audit.maths.decompositions import eigh, eigvalsh
from audit.maths.lanczos import MOST_STEPS, iterated

WHOLE = 1500  # columns up to which all eigenpairs of the Gram matrix are had at once
RESIDUAL = 1e-9  # of an eigenpair of a larger one
NUMBERS = 1 << 24  # numbers of formed columns held at once
NORM = {torch.float64: 1e-9, torch.float32: 1e-6}  # what a large matrix's spectral norm, squared, is known to
NORM_STEPS = 200  # vectors of its iteration that are kept
NO_DIRECTION = 1e-13  # eigenvalues below this share of the largest are rounding


@dataclass(frozen=True)
class Columns:
    """k columns Σ_t q_t x_tᵀ, each a matrix [out, in], in factors."""

    q: Tensor  # [k, T, out]
    x: Tensor  # [k, T, in]

    def __len__(self) -> int:
        return len(self.q)

    def none(self) -> Columns:
        """No column of the same shape; a slice would keep all of them in memory."""
        return Columns(self.q[:0].clone(), self.x[:0].clone())

    def gram(self) -> Tensor:
        """Inner products of all pairs [k, k], float64, multiplied in the columns' own precision.

        >>> Columns(torch.ones(1, 1, 2), torch.full((1, 1, 3), 2.0)).gram()
        tensor([[24.]], dtype=torch.float64)
        """
        (k, T, out), size = self.q.shape, self.x.shape[2]
        if T == 1:
            q, x = self.q[:, 0], self.x[:, 0]
            return (q @ q.T).double().mul_(x @ x.T)
        if T * (out + size) < out * size and k * T <= WHOLE:
            q, x = self.q.flatten(0, 1), self.x.flatten(0, 1)
            return (q @ q.T).double().mul_(x @ x.T).reshape(k, T, k, T).sum((1, 3))
        total = self.q.new_zeros(k, k, dtype=torch.float64)
        for rows in torch.split(self.q, max(1, NUMBERS // (k * size)), 2):
            formed = torch.einsum("kto,kti->koi", rows, self.x).flatten(1)
            total += formed @ formed.T
        return total

    def energy(self) -> Tensor:
        """‖column‖² [k], float64."""
        q, x = self.q.double(), self.x.double()
        if q.shape[1] == 1:
            return q.square().sum((1, 2)) * x.square().sum((1, 2))
        return ((q @ q.mT) * (x @ x.mT)).sum((1, 2))

    def combined(self, weights: Tensor) -> Tensor:
        """Σ_k weights_k column_k [out, in], float64; weights [k]."""
        q = self.q.double() * weights.to(self.q.device, torch.float64)[:, None, None]
        return q.flatten(0, 1).T @ self.x.flatten(0, 1).double()

    def times(self, weights: Tensor, x: Tensor) -> Tensor:
        """The product x Mᵀ […, out] with M = Σ_k weights_k column_k, formed only where that is less work; x […, in]."""
        out, size = self.q.shape[2], self.x.shape[2]
        if x.numel() // size * (out + size) >= out * size:
            return x @ self.combined(weights).to(x).T
        q = self.q.to(x) * weights.to(x)[:, None, None]
        return (x @ self.x.flatten(0, 1).to(x).T) @ q.flatten(0, 1)

    def inner(self, u: Tensor, p: Tensor) -> Tensor:
        """Inner products [m, k] with matrices Σ_t u_t p_tᵀ; u [m, T′, out], p [m, T′, in]."""
        if u.shape[1] == self.q.shape[1] == 1:
            q, x = self.q[:, 0].to(u), self.x[:, 0].to(p)
            return (u[:, 0] @ q.T).mul_(p[:, 0] @ x.T)
        whole = u.new_zeros(len(u), len(self))
        size = max(1, NUMBERS // (max(len(u), len(self)) * p.shape[2]))
        for rows, own in zip(torch.split(u, size, 2), torch.split(self.q, size, 2), strict=True):
            theirs = torch.einsum("mto,mti->moi", rows, p).flatten(1)
            whole.addmm_(theirs, torch.einsum("kto,kti->koi", own, self.x).flatten(1).to(theirs).T)
        return whole

    def of_most_energy(self, count: int) -> Columns:
        """The `count` columns with the largest ‖column‖², in their order."""
        if len(self) <= count:
            return self
        kept = torch.topk(self.energy(), count).indices.sort().values
        return Columns(self.q[kept], self.x[kept])


@dataclass(frozen=True)
class ColumnPairs:
    """Eigenpairs of A Aᵀ/n on the kept columns; the vectors E_j = Σ_k weights_jk column_k stay in factors."""

    values: Tensor  # [N]  descending: no eigenvalue of the whole is smaller …
    dropped: float  # … nor larger by more than this, the trace of what was left out, over n
    weights: Tensor  # [N, k]
    columns: Columns
    count: int  # columns that the values are from
    orthonormality: float  # largest entry of |E Eᵀ − 1|

    def project(self, u: Tensor, p: Tensor) -> Tensor:
        """Inner products [m, N] of the E_j with matrices Σ_t u_t p_tᵀ; u [m, T, out], p [m, T, in]."""
        return self.columns.inner(u, p) @ self.weights.T.to(u)


def column_pairs(columns: Columns, n: int, trace: float, most: int, seed: int = 0) -> ColumnPairs:
    """At most `most` leading pairs of A Aᵀ/n with Tr(A Aᵀ)/n = `trace`, from the given columns of A.

    >>> pairs = column_pairs(Columns(torch.eye(2)[:, None], torch.tensor([[[3.0]], [[1.0]]])), 1, 12.0, 2)
    >>> pairs.values.tolist(), pairs.dropped
    ([9.0, 1.0], 2.0)
    """
    G = columns.gram()
    most = min(most, len(columns))
    if len(columns) <= WHOLE or 4 * most >= len(columns):
        values, Y = (part.flip(-1)[..., :most] for part in eigh(G))
    else:
        found = iterated(_Dense(G), most, RESIDUAL, seed, values_only=False)
        values, Y = found.values, found.vectors.flatten(1).T
    real = values > NO_DIRECTION * values[0].clamp(min=0)
    weights = (Y[:, real] / values[real].sqrt()).T
    dropped = max(0.0, trace - float(G.diagonal().sum()) / n)
    off = (weights @ G @ weights.T - torch.eye(len(weights), dtype=G.dtype, device=G.device)).abs()
    return ColumnPairs(values[real] / n, dropped, weights, columns, len(columns), float(off.max()) if len(off) else 0.0)


def spectral_norm(W: Tensor) -> float:
    """‖W‖₂ of W [out, in]: squaring costs the largest singular value no digits, so the smaller Gram matrix will do.

    That of a large layer takes longer to decompose than all the rest, and is only multiplied by.

    >>> spectral_norm(torch.tensor([[3.0, 4.0]]))
    5.0
    """
    scale = W.abs().max().double()
    if scale == 0:
        return 0.0
    if min(W.shape) > DENSE_LIMIT:
        found = iterated(_Squared(W, scale), 1, NORM[W.dtype], seed=0, values_only=True)
        if found.iterations < MOST_STEPS:
            return float(found.values[0].sqrt() * scale)
    W = W.double() / scale
    gram = W @ W.T if W.shape[0] <= W.shape[1] else W.T @ W
    return float(eigvalsh(gram)[-1].sqrt() * scale)


@dataclass(frozen=True)
class _Squared:
    """Wᵀ W over the square of a scale as an iteration sees it, in W's own precision, a few rows at a time."""

    W: Tensor  # [out, in]
    scale: Tensor

    @property
    def dim(self) -> int:
        return self.W.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        return self.dim, 1

    @property
    def dtype(self) -> torch.dtype:
        return self.W.dtype

    @property
    def room(self) -> int:
        return self.dim * 8 * NORM_STEPS

    def times(self, V: Tensor) -> Tensor:
        """H V; V [m, in, 1]."""
        v = V[..., 0].to(self.W) / float(self.scale)
        parts = (self.W[rows] for rows in row_blocks(self.W))
        found = sum(((v @ part.T / float(self.scale)) @ part).double() for part in parts)
        return torch.as_tensor(found).to(V)[..., None]


@dataclass(frozen=True)
class _Dense:
    """A symmetric matrix as an iteration sees it."""

    matrix: Tensor  # [k, k]

    @property
    def dim(self) -> int:
        return len(self.matrix)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.matrix), 1

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def room(self) -> int:
        return self.matrix.numel() * 8

    def times(self, V: Tensor) -> Tensor:
        """H V; V [m, k, 1]."""
        return (V[..., 0].to(self.matrix) @ self.matrix).to(V)[..., None]
