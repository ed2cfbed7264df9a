"""The Hessian of the mean train loss with respect to one layer's weights: its products, its matrix, its top eigenpairs.

z = W x + b is linear in W, so H_W = mean_i Σ_{t,t'} S_i^{tt'} ⊗ x_it x_it'ᵀ with S = ∂²l/∂z² = Jᵀ Λ J + R, and H·V
costs two matrix products with x and two thin ones with J; no gradient with respect to W is formed. vec(W) is row-major.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.layers import DenseLayer
from audit.measure import Records
from audit.record import Record

DENSE_LIMIT = 4096  # weights up to which the matrix itself is formed (128 MB)
SMALL = 400  # weights up to which eigh of the matrix is quicker than any iteration
BLOCK = 4  # directions pushed through the network at once when several eigenpairs are wanted
LEAST_STEPS = 10  # before any convergence is believed: an early small residual may belong to λ₂
MOST_STEPS = 500
BASIS_NUMBERS = 1 << 25  # numbers in the Krylov basis (256 MB) beyond which it is restarted from its best vectors
ROW_NUMBERS = 1 << 22  # numbers in one block of weight Jacobians
EXHAUSTED = 1e-10  # share of H q outside the basis below which there is nothing new in it
SAME = 1e-6  # relative distance below which two eigenvalues count as one
GRAPH_FACTOR = 4  # what a record with its autograd graph takes, in multiples of the record alone


class LayerHessian:
    """H of the mean loss over `records` with respect to the weights [out, in] of `layer`, in float64.

    Records with a curved tail are recaptured on every walk by `Records`; here they are held, graph and all, where they
    fit into the room that `Records` did not use, since an eigenvector takes many walks.
    """

    def __init__(self, records: Records, layer: DenseLayer) -> None:
        self.layer, self.shape = layer, (layer.out_features, layer.in_features)
        self.dim = layer.out_features * layer.in_features
        self._records = records
        self._held: list[Record] | None = None

    def times(self, V: Tensor) -> Tensor:
        """H V; V [..., out, in] → [..., out, in], all directions in one walk over the samples."""
        directions = V.double().reshape(-1, *self.shape)
        H_V: Tensor | None = None
        for record in self._walk():
            part = _product(record, self.layer.name, directions)
            H_V = part if H_V is None else H_V.add_(part)
        assert H_V is not None, "a split has samples"
        return (H_V / len(self._records)).reshape(V.shape)

    def rayleigh_quotients(self, v: Tensor) -> Tensor:
        """vᵀ H_i v of every sample i [n], v [out, in]; their mean is vᵀ H v."""
        v, name = v.double(), self.layer.name
        quotients = []
        for record in self._walk():
            u = record.layers[name].x.double() @ v.to(record.f.device).T
            quotients.append((u * record.curvature_times(name, u)).sum((1, 2)))
        return torch.cat(quotients)

    def dense(self) -> Tensor:
        """H itself [dim, dim]."""
        if self.dim > DENSE_LIMIT:
            raise ValueError(f"{self.layer.name}: {self.dim} weights are too many for a dense Hessian.")
        H: Tensor | None = None
        for record in self._walk():
            if H is None:
                H = torch.zeros(*self.shape, *self.shape, dtype=torch.float64, device=record.f.device)
            _add_gauss_newton(H, record, self.layer.name)
            _add_residual(H, record, self.layer.name)
        assert H is not None, "a split has samples"
        H = H.reshape(self.dim, self.dim) / len(self._records)
        return (H + H.T) / 2

    def _walk(self) -> Iterator[Record]:
        if self._held is not None:
            yield from self._held
            return
        held: list[Record] | None = []
        left = self._records.room
        for record in self._records:
            left -= GRAPH_FACTOR * record.bytes()
            held = [*held, record] if held is not None and record.has_graph() and left >= 0 else None
            yield record
        self._held = held


def _product(record: Record, name: str, V: Tensor) -> Tensor:
    """Σ over the record's samples of (S (V x)) xᵀ; V [k, out, in] → [k, out, in]."""
    layer = record.layers[name]
    x, J = layer.x.double(), layer.J.double()
    (n, T, _), (k, out, _) = x.shape, V.shape
    V = V.to(x.device)
    u = (x.flatten(0, 1) @ V.flatten(0, 1).T).reshape(n, T, k, out).transpose(1, 2).reshape(n, k, T * out)
    J = J.flatten(2)  # [n, C, T·out]
    J_u = J @ u.transpose(1, 2)  # [n, C, k]
    S_u = record.loss_function.curvature_times(record.f, J_u).transpose(1, 2) @ J  # [n, k, T·out]
    if layer.residual_times is not None:
        rest = [layer.residual_times(u[:, direction].reshape(n, T, out)) for direction in range(k)]
        S_u = S_u + torch.stack([part.flatten(1) for part in rest], 1)
    S_u = S_u.reshape(n, k, T, out).permute(1, 3, 0, 2).reshape(k * out, n * T)
    return (S_u @ x.flatten(0, 1)).reshape(V.shape)


def _add_gauss_newton(H: Tensor, record: Record, name: str) -> None:
    """Adds Σ Aᵀ A ⊗ x xᵀ, A the root of the Gauss–Newton curvature, to H [out, in, out, in]."""
    x, A = record.layers[name].x.double(), record.gauss_newton_root(name)  # [n, T, in]  [n, C, T, out]
    if x.shape[1] == 1:
        x, A = x[:, 0], A[:, :, 0]
        for o in range(A.shape[2]):
            S_o = torch.einsum("nc,nco->no", A[:, :, o], A[:, :, o:])  # row o of S from its diagonal on
            block = x.T @ (S_o[:, :, None] * x[:, None, :]).flatten(1)
            _add_symmetric(H, o, block)
        return
    rows = max(1, ROW_NUMBERS // (A.shape[1] * H.shape[0] * H.shape[1]))
    matrix = H.view(H.shape[0] * H.shape[1], -1)
    for A_part, x_part in zip(torch.split(A, rows), torch.split(x, rows), strict=True):
        G = torch.einsum("ncto,nti->ncoi", A_part, x_part).flatten(2).flatten(0, 1)  # Σ_t a_t ⊗ x_t  [n·C, out·in]
        matrix.addmm_(G.T, G)


def _add_residual(H: Tensor, record: Record, name: str) -> None:
    """Adds Σ R^{tt'} ⊗ x_t x_t'ᵀ, the curvature of the network after the layer, one unit (t, o) after the other."""
    layer = record.layers[name]
    if layer.residual_times is None:
        return
    n, T, out = layer.z.shape
    x = layer.x.double()
    for t in range(T):
        for o in range(out):
            unit = torch.zeros(T, out, dtype=torch.float64, device=x.device)
            unit[t, o] = 1.0
            R_to = layer.residual_times(unit.expand(n, T, out))  # column (t, o) of R, which is symmetric
            H[o] += (x[:, t].T @ torch.einsum("nso,nsi->noi", R_to, x).flatten(1)).view_as(H[o])


def _add_symmetric(H: Tensor, o: int, block: Tensor) -> None:
    """Adds `block` [in, (out − o)·in], row o of H from its diagonal on, on both sides of the diagonal."""
    row = block.view(H.shape[1], -1, H.shape[3])
    H[o, :, o:] += row
    H[o + 1 :, :, o] += row[:, 1:].permute(1, 2, 0)


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

    With `values_only`, `tolerance` is asked of the eigenvalues alone: by Kato and Temple the error of a Ritz value is
    at most ‖residual‖² over its distance to the rest of the spectrum, so about half the iterations will do.
    """
    k = min(k, hessian.dim)
    if hessian.dim <= SMALL or (hessian.dim <= DENSE_LIMIT and 4 * k >= hessian.dim):
        pairs = all_eigenpairs(hessian)
        return EigenPairs(pairs.values[:k], pairs.vectors[:k], pairs.residuals[:k], 0)
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


def _lanczos(hessian: LayerHessian, k: int, block: int, tolerance: float, seed: int, values_only: bool) -> EigenPairs:
    """Block Lanczos with full reorthogonalisation and thick restarts.

    Q [m, dim] is the basis and T = Q H Qᵀ. The part of H Q outside the basis lies along the newest block: with
    H q_new = Qᵀ T_new + Bᵀ-combinations of the next block, the residual of the Ritz vector Qᵀ y is ‖B y_new‖.
    """
    generator = torch.Generator().manual_seed(seed)
    new = torch.linalg.qr(torch.randn(hessian.dim, block, generator=generator, dtype=torch.float64))[0].T
    most = max(4 * k + 4 * block, BASIS_NUMBERS // hessian.dim)
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
    if bool((residuals[:k] <= tolerance).all()):
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
    """What P [b, dim] adds to the basis Q: N [≤ b, dim] orthonormal and ⟂ Q, and B: ‖B y‖ is the part of Pᵀ y outside Q.

    Where P adds nothing (the Krylov space is exhausted), random directions take over, with B = 0 there.
    """
    scale = P.norm(dim=1).max()
    for _ in range(2):  # twice is enough
        P = P - (P @ Q.T) @ Q
    U, size, N = torch.linalg.svd(P, full_matrices=False)
    real = size > EXHAUSTED * scale
    N, B = N[real], (U * size).T[real]
    missing = min(len(P), P.shape[1] - len(Q)) - len(N)
    fresh = torch.randn(max(0, missing), P.shape[1], generator=generator, dtype=torch.float64).to(P.device)
    N = torch.cat([N, fresh])[: len(N) + missing]
    for _ in range(2):
        N = torch.linalg.qr((N - (N @ Q.T) @ Q).T)[0].T
    return N, torch.cat([B, B.new_zeros(max(0, missing), len(P))])[: len(N)]
