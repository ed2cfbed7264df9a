"""The Hessian of one layer as a matrix, summed up record by record.

With one vector per sample its Gauss–Newton part is Σ S ⊗ x xᵀ. Both factors are symmetric: as tables of their upper
triangles, with a row for each sample, all of it is one matrix product, with a quarter of the numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.network.record import Record

NARROW = 128  # inputs up to which x xᵀ of every sample is tabulated
TABLE = 1 << 21  # numbers in one block of such a table


class HessianMatrix:
    """Σ over samples of the Hessian in W [out, in]."""

    def __init__(self, out: int, into: int) -> None:
        self._out, self._into = out, into
        self._triangles: Tensor | None = None  # [out (out + 1)/2, in (in + 1)/2]
        self._sum: Tensor | None = None  # [out, in, out, in], of what does not come in triangles

    def add(self, record: Record, name: str) -> None:
        """Takes in one record."""
        layer = record.layers[name]
        if layer.x.shape[1] == 1 and self._into <= NARROW:
            part = _triangles(record, name)
            self._triangles = part if self._triangles is None else self._triangles.add_(part)
        else:
            _add_gauss_newton(self._whole_sum(record), record, name)
        if layer.residual_times is not None:
            _add_residual(self._whole_sum(record), record, name)

    def whole(self) -> Tensor:
        """The sum [dim, dim], symmetric."""
        dim = self._out * self._into
        if self._sum is None:
            assert self._triangles is not None, "a split has samples"
            return self._from_triangles(self._triangles).reshape(dim, dim)
        if self._triangles is not None:
            self._sum += self._from_triangles(self._triangles)
        H = self._sum.reshape(dim, dim)
        return (H + H.T) / 2

    def _whole_sum(self, record: Record) -> Tensor:
        if self._sum is None:
            shape = (self._out, self._into, self._out, self._into)
            self._sum = torch.zeros(shape, dtype=torch.float64, device=record.f.device)
        return self._sum

    def _from_triangles(self, triangles: Tensor) -> Tensor:
        rows, columns = (_places(size, triangles) for size in (self._out, self._into))
        return triangles[rows[:, None, :, None], columns[None, :, None, :]]


def _triangles(record: Record, name: str) -> Tensor:
    """Σ (upper triangle of S) (upper triangle of x xᵀ)ᵀ over the record's samples."""
    x, A = record.layers[name].x.double()[:, 0], record.gauss_newton_root(name)[:, :, 0]  # [n, in]  [n, C, out]
    (o, p), (i, j) = (torch.triu_indices(size, size, device=x.device) for size in (A.shape[2], x.shape[1]))
    total = x.new_zeros(len(o), len(i))
    rows = max(1, TABLE // (len(i) + A.shape[2] ** 2))
    for x_part, A_part in zip(torch.split(x, rows), torch.split(A, rows), strict=True):
        S = (A_part.mT @ A_part).flatten(1)[:, o * A.shape[2] + p]
        total.addmm_(S.T, x_part[:, i] * x_part[:, j])
    return total


def _places(size: int, like: Tensor) -> Tensor:
    """Where each entry of a symmetric matrix is in its upper triangle, row by row  [size, size]."""
    i, j = torch.triu_indices(size, size, device=like.device)
    places = torch.empty(size, size, dtype=torch.int64, device=like.device)
    places[i, j] = places[j, i] = torch.arange(len(i), device=like.device)
    return places


def _add_gauss_newton(H: Tensor, record: Record, name: str) -> None:
    """Adds Σ Aᵀ A ⊗ x xᵀ, A the root of the Gauss–Newton curvature, to H [out, in, out, in]."""
    if record.layers[name].x.shape[1] == 1:
        x, A = record.layers[name].x.double()[:, 0], record.gauss_newton_root(name)[:, :, 0]  # [n, in]  [n, C, out]
        for o in range(A.shape[2]):
            S_o = torch.einsum("nc,nco->no", A[:, :, o], A[:, :, o:])  # row o of S from its diagonal on
            block = x.T @ (S_o[:, :, None] * x[:, None, :]).flatten(1)
            _add_symmetric(H, o, block)
        return
    matrix = H.view(H.shape[0] * H.shape[1], -1)
    for G in record.gauss_newton_weight_root(name):
        by_weight = G.flatten(2).flatten(0, 1)  # [n·C, out·in]
        matrix.addmm_(by_weight.T, by_weight)


def _add_residual(H: Tensor, record: Record, name: str) -> None:
    """Adds Σ R^{tt'} ⊗ x_t x_t'ᵀ, the curvature of the network after the layer, in as few products with R as possible.

    One for each unit (t, o) of its answer; where it has fewer weights than units, one for each weight.
    """
    layer = record.layers[name]
    if layer.residual_times is None:
        return
    n, T, out = layer.z.shape
    x = layer.x.double()
    if x.shape[2] < T:
        for o in range(out):
            for i in range(x.shape[2]):
                moved = torch.zeros(n, T, out, dtype=torch.float64, device=x.device)
                moved[:, :, o] = x[:, :, i]
                H[o, i] += layer.residual_times(moved).flatten(0, 1).T @ x.flatten(0, 1)
        return
    for t, outputs, columns in layer.residual_columns():
        for o, R_to in zip(outputs.tolist(), columns, strict=True):
            H[o] += (x[:, t].T @ torch.einsum("nso,nsi->noi", R_to, x).flatten(1)).view_as(H[o])


def _add_symmetric(H: Tensor, o: int, block: Tensor) -> None:
    """Adds `block` [in, (out − o)·in], row o of H from its diagonal on, on both sides of the diagonal."""
    row = block.view(H.shape[1], -1, H.shape[3])
    H[o, :, o:] += row
    H[o + 1 :, :, o] += row[:, 1:].permute(1, 2, 0)
