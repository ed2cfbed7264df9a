"""The directions that the gap is split along: eigenvectors of the layer's Hessian over the train samples.

Up to 4,096 weights all of them; beyond, the leading ones. Eigenvectors of one eigenvalue are unique only up to a
rotation, and so is everything projected on them: inside such an eigenspace (the null space above all) the directions
are those that diagonalise the covariance of the effective gradients g there, and where g hardly varies, of ΔW.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from audit.curvature.spectrum import ONE_SPACE, EigenPairs
from audit.maths.blocks import DIRECTIONS, blocks
from audit.maths.decompositions import svd
from audit.maths.gram import ColumnPairs, Columns
from audit.measures.duality.pairs import Dual

UNVARYING = 1e-12  # a deviation below this share of the total one is rounding
FAINT = 1e-10  # … and below this one too near to rounding to tell directions of one eigenspace apart


class Vectors(Protocol):
    """N orthonormal matrices [out, in], formed or in factors."""

    def __len__(self) -> int: ...

    def along(self, dual: Dual) -> Tensor:
        """ΔW_k·E_n of some pairs [k, N]."""

    def direction(self, space: slice, weights: Tensor) -> Direction:
        """Σ_n weights_n E_n over some vectors."""


class Direction(Protocol):
    """One matrix E [out, in] of length one, formed or in factors."""

    def matrix(self) -> Tensor:
        """E [out, in]."""

    def times(self, x: Tensor) -> Tensor:
        """The product x Eᵀ […, out]; x […, in]."""


@dataclass(frozen=True)
class Formed:
    """Vectors as they are."""

    E: Tensor  # [N, out, in]

    def __len__(self) -> int:
        return len(self.E)

    def along(self, dual: Dual) -> Tensor:
        """ΔW_k·E_n [k, N]."""
        return dual.project(self.E)

    def direction(self, space: slice, weights: Tensor) -> Direction:
        """Σ_n weights_n E_n."""
        return FormedDirection(torch.einsum("noi,n->oi", self.E[space], weights))


@dataclass(frozen=True)
class FormedDirection:
    """A direction as it is."""

    E: Tensor  # [out, in]

    def matrix(self) -> Tensor:
        """E [out, in]."""
        return self.E

    def times(self, x: Tensor) -> Tensor:
        """The product x Eᵀ."""
        return x @ self.E.to(x).T


@dataclass(frozen=True)
class Factored:
    """Vectors that would take too much memory: each a sum over columns of the Hessian's root."""

    pairs: ColumnPairs

    def __len__(self) -> int:
        return len(self.pairs.values)

    def along(self, dual: Dual) -> Tensor:
        """ΔW_k·E_n [k, N]."""
        return self.pairs.project(dual.u, dual.p)

    def direction(self, space: slice, weights: Tensor) -> Direction:
        """Σ_n weights_n E_n."""
        return FactoredDirection(self.pairs.columns, weights.to(self.pairs.weights) @ self.pairs.weights[space])


@dataclass(frozen=True)
class FactoredDirection:
    """A direction that is a sum over columns."""

    columns: Columns
    weights: Tensor  # [k]

    def matrix(self) -> Tensor:
        """E [out, in]."""
        return self.columns.combined(self.weights)

    def times(self, x: Tensor) -> Tensor:
        """The product x Eᵀ, without E where that is less work."""
        return self.columns.times(self.weights, x)


@dataclass(frozen=True)
class Basis:
    """Orthonormal directions, as the eigenproblem gave them."""

    values: Tensor  # [N]  eigenvalues, descending
    vectors: Vectors
    complete: bool
    residual: float  # largest ‖H e − λ e‖ / |λ|_max
    orthonormality: float  # largest entry of |E Eᵀ − 1|
    trace: float | None  # Tr H where all eigenvalues are known


@dataclass(frozen=True)
class Projections:
    """ΔW of every pair along every direction, in the order of σ_g, largest first."""

    w: Tensor  # [K, N]
    values: Tensor  # [N]  eᵀ H e
    sigma_g: Tensor  # [N]  0 where it is rounding alone
    moments: Moments
    leading: Leading  # the first directions themselves


def hessian_basis(pairs: EigenPairs) -> Basis:
    """All eigenvectors, or the leading ones whose eigenvalue is not zero to working precision."""
    complete = len(pairs.vectors) == pairs.vectors[0].numel()
    if complete:
        known, trace = len(pairs.values), float(pairs.values.sum())
    else:
        known, trace = int((pairs.values > ONE_SPACE * pairs.values.abs().max()).sum()), None
    residual = float(pairs.residuals[:known].max()) if known else 0.0
    E = pairs.vectors[:known]
    return Basis(pairs.values[:known], Formed(E), complete, residual, _orthonormality(E), trace)


def column_basis(pairs: ColumnPairs) -> Basis:
    """The eigenvectors of the columns that carry most of the Hessian's trace: exactly orthonormal on these columns."""
    known = int((pairs.values > ONE_SPACE * pairs.values.abs().max()).sum()) if len(pairs.values) else 0
    kept = replace(pairs, values=pairs.values[:known], weights=pairs.weights[:known])
    return Basis(kept.values, Factored(kept), False, 0.0, pairs.orthonormality, None)


def _orthonormality(vectors: Tensor) -> float:
    E = vectors.flatten(1)
    return float((E @ E.T - torch.eye(len(E), dtype=E.dtype, device=E.device)).abs().max()) if len(E) else 0.0


def resolve_eigenspaces(basis: Basis, w: Tensor, s: Tensor, leading: int) -> Projections:
    """Rotates every degenerate eigenspace and puts the directions in the order of σ_g.

    w [K, N] projections on `basis`, which are used up; s [K] with g_k = s_k ΔW_k.
    """
    rotations: list[tuple[slice, Tensor]] = []
    spaces = eigenspaces(basis.values)
    faint = FAINT * float(moments(w, s).sigma_g.norm()) if spaces else 0.0
    for space in spaces:
        rotation = _rotation(w[:, space], s, faint)
        w[:, space] = w[:, space] @ rotation
        rotations.append((space, rotation))
    found = moments(w, s)
    sigma_g = torch.where(found.sigma_g > UNVARYING * found.sigma_g.norm(), found.sigma_g, 0.0)
    order = _order(sigma_g, found.sigma_w)
    # an eigenvector has no sign of its own: the first ones point to where the test samples lie in the mean
    towards = torch.where(w[:, order[:leading]].mean(0) < 0, -1.0, 1.0).tolist()
    first = Leading(basis.vectors, rotations, order[:leading].tolist(), towards)
    return Projections(w[:, order], basis.values[order], sigma_g[order], found.in_order(order), first)


@dataclass(frozen=True)
class Leading:
    """The first directions after the rotations; each is formed when its turn comes, for one may be large."""

    vectors: Vectors
    rotations: list[tuple[slice, Tensor]]
    order: list[int]  # which of the vectors
    towards: list[float]  # 1 or −1

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Direction]:
        for n, sign in zip(self.order, self.towards, strict=True):
            yield self._direction(n, sign)

    def _direction(self, n: int, sign: float) -> Direction:
        for space, rotation in self.rotations:
            if space.start <= n < space.stop:
                return self.vectors.direction(space, sign * rotation[:, n - space.start])
        return self.vectors.direction(slice(n, n + 1), torch.tensor([sign], dtype=torch.float64))


def _order(sigma_g: Tensor, sigma_w: Tensor) -> Tensor:
    """Largest σ_g first; those without any last, largest σ_w first."""
    by_w = torch.argsort(sigma_w, descending=True, stable=True)
    return by_w[torch.argsort(sigma_g[by_w], descending=True, stable=True)]


def eigenspaces(values: Tensor) -> list[slice]:
    """Runs of more than one eigenvalue, each closer than `ONE_SPACE` to the next; values descending."""
    if len(values) < 2:
        return []
    together = (values[:-1] - values[1:]) <= ONE_SPACE * values.abs().max()
    edges = [0, *(torch.nonzero(~together)[:, 0] + 1).tolist(), len(values)]
    return [slice(a, b) for a, b in pairwise(edges) if b - a > 1]


def _rotation(w: Tensor, s: Tensor, faint: float) -> Tensor:
    """Q [m, m] orthogonal: its columns diagonalise Cov(g), and Cov(ΔW) where g deviates by no more than `faint`."""
    Q, deviations = _principal(s[:, None] * w)
    rank = int((deviations > faint).sum())
    rest, _ = _principal(w @ Q[:, rank:])
    return torch.cat([Q[:, :rank], Q[:, rank:] @ rest], 1)


def _principal(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Principal directions of samples [K, m] as columns [m, m], widest first, and the deviations along the first."""
    if samples.shape[1] == 0:
        return samples.new_zeros(0, 0), samples.new_zeros(0)
    centred = samples - samples.mean(0)
    if len(centred) > centred.shape[1]:
        centred = torch.linalg.qr(centred, mode="r").R  # the same right singular vectors, without a [K, K] factor
    _, widths, V = svd(centred, full_matrices=True)
    return V.mT, widths / len(samples) ** 0.5


# Deviations and covariances of all pairs along all directions, in one sweep, a few directions at a time.
# The table of projections [K, N] may be the largest thing in an audit: nothing here is as large as it.


@dataclass(frozen=True)
class Moments:
    """Of projections w and g = s w, around their means."""

    sigma_w: Tensor  # [N]
    sigma_g: Tensor  # [N]
    contribution: Tensor  # [N]  cov(g_n, w_n)
    square_w: Tensor  # [K]  Σ_n (w_n − ⟨w_n⟩)²
    square_g: Tensor  # [K]

    def in_order(self, order: Tensor) -> Moments:
        """The directions in another order."""
        return Moments(self.sigma_w[order], self.sigma_g[order], self.contribution[order], self.square_w, self.square_g)


def moments(w: Tensor, s: Tensor) -> Moments:
    """Of w [K, N], with s [K]."""
    found, square_w, square_g = [], torch.zeros_like(s), torch.zeros_like(s)
    for some in blocks(max(1, w.shape[1]), 1, DIRECTIONS):  # an empty one where there is no direction
        part = w[:, some]
        g_part = s[:, None] * part
        w_part, g_part = part - part.mean(0), g_part.sub_(g_part.mean(0))
        contribution = (g_part * w_part).mean(0)
        w_part, g_part = w_part.square_(), g_part.square_()
        found.append((w_part.mean(0).sqrt(), g_part.mean(0).sqrt(), contribution))
        square_w += w_part.sum(1)
        square_g += g_part.sum(1)
    sigma_w, sigma_g, contribution = (torch.cat(column) for column in zip(*found, strict=True))
    return Moments(sigma_w, sigma_g, contribution, square_w, square_g)
