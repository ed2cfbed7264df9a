"""The Hessian of one layer, formed: as a matrix, or as its factors in single precision.

The matrix is summed up record by record.

With one vector per sample its Gauss–Newton part is Σ S ⊗ x xᵀ. Both factors are symmetric: as tables of their upper
triangles, with a row for each sample, all of it is one matrix product, with a quarter of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.blocks import CACHED_SINGLE, TABLE, blocks
from audit.network.record import Record

NARROW = 128  # inputs up to which x xᵀ of every sample is tabulated


class HessianMatrix:
    """Σ over samples of the Hessian in W [out, in]."""

    def __init__(self, out: int, into: int) -> None:
        self._out, self._into = out, into
        self._triangles: Tensor | None = None  # [out (out + 1)/2, in (in + 1)/2]
        self._sum: Tensor | None = None  # [out, in, out, in], of what does not come in triangles

    def add(self, record: Record, name: str) -> None:
        """Takes in layer `name` on the samples of one record."""
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
    for part in blocks(len(x), len(i) + A.shape[2] ** 2, TABLE):
        S = (A[part].mT @ A[part]).flatten(1)[:, o * A.shape[2] + p]
        total.addmm_(S.T, x[part][:, i] * x[part][:, j])
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


# The Hessian of one layer in single precision: good for directions, not for final numbers, and twice as quick.
# H = mean Σ_{t,t'} AᵀA ⊗ x_t x_t'ᵀ with A the root of the Gauss–Newton curvature. A is scaled to its largest entry
# before it is rounded, since a confident network's curvature of 1e-40 is still a curvature; and what is zero in every
# sample (the margin of an image, a dead neuron) is left out of x, since H is zero there.


@dataclass(frozen=True)
class SingleHessian:
    """H / scale on the inputs in use, with x and A in single precision."""

    shape: tuple[int, int]  # [out, inputs in use]
    scale: float
    x: Tensor  # [n, T, inputs in use]
    A: Tensor  # [n, C, T·out]  AᵀA/n = S/scale
    used: Tensor  # [in]  which inputs are in use
    room: int  # bytes that a basis of vectors may take

    @property
    def dim(self) -> int:
        """Rows of H."""
        return self.shape[0] * self.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of what `times` takes and gives."""
        return torch.float32

    def times(self, V: Tensor) -> Tensor:
        """H V / scale; V [k, out, inputs in use] → the same shape."""
        u = weights_jvp(self.x, V.to(self.x.device))
        for part in blocks(len(u), self.A[0].numel(), CACHED_SINGLE):
            torch.bmm(u[part] @ self.A[part].mT, self.A[part], out=u[part])
        return weights_vjp(self.x, u, V.shape)

    def whole(self, V: Tensor) -> Tensor:
        """V [k, out, inputs in use] → [k, out, in], double precision."""
        filled = torch.zeros(*V.shape[:2], len(self.used), dtype=torch.float64, device=V.device)
        filled[:, :, self.used] = V.double()
        return filled


def single_precision(records: Iterable[Record], name: str, samples: int, room: int) -> SingleHessian | None:
    """H of the mean loss over all `samples` of `records` in the weights of layer `name`.

    None where it does not fit into `room` bytes, or where the network after the layer is curved.
    """
    parts: list[tuple[slice, Tensor]] = []
    x = A = torch.empty(0)
    for record in records:
        layer = record.layers[name]
        bytes_each = 4 * (2 * layer.x[0].numel() + layer.J[0].numel())  # x twice, while the inputs in use are picked
        if samples * bytes_each > room or layer.residual_times is not None:
            return None
        if not parts:
            shapes = layer.x.shape[1:], layer.J.flatten(2).shape[1:]
            x, A = (torch.empty(samples, *shape, device=layer.x.device) for shape in shapes)
        x[record.start : record.start + len(layer.x)] = layer.x
        parts += _fill(A, record, layer.J)
    largest = torch.stack([size for _, size in parts]).max()
    for rows, size in parts:
        A[rows] *= size / largest
    used = (x != 0).flatten(0, 1).any(0)
    x = x if bool(used.all()) else x[:, :, used]
    shape = layer.layer.out_features, x.shape[2]
    return SingleHessian(shape, float(largest.square() / samples), x, A, used, room)


def _fill(A: Tensor, record: Record, J: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Writes the record's part of A, some rows at a time, each such part over its largest entry; rows and entry."""
    for part in blocks(len(J), J[0].numel(), CACHED_SINGLE):
        root = record.loss_function.curvature_root_times(record.f[part], record.y[part], J[part].double()).flatten(2)
        largest = torch.stack(torch.aminmax(root)).abs().max().clamp(min=torch.finfo(torch.float64).tiny)
        rows = slice(record.start + part.start, record.start + part.stop)
        A[rows] = root.div_(largest)
        yield rows, largest


def weights_jvp(x: Tensor, V: Tensor) -> Tensor:
    """The derivative of z = W x along k directions V [k, out, in] of the weights: V x, [n, k, T·out], for x [n, T, in].

    >>> weights_jvp(torch.ones(1, 1, 2), torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]))
    tensor([[[3.],
             [7.]]])
    """
    (n, T, _), (k, out, _) = x.shape, V.shape
    return (x.flatten(0, 1) @ V.flatten(0, 1).T).reshape(n, T, k, out).transpose(1, 2).reshape(n, k, T * out)


def weights_vjp(x: Tensor, U: Tensor, shape: torch.Size) -> Tensor:
    """The way back: Σ u xᵀ over samples and tokens, of `shape` [k, out, in], for U [n, k, T·out] and x [n, T, in].

    >>> weights_vjp(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0]]]), torch.Size([1, 1, 2]))
    tensor([[[3., 6.]]])
    """
    (n, T, _), (k, out, _) = x.shape, shape
    by_token = U.reshape(n, k, T, out).transpose(1, 2).reshape(n * T, k * out)  # no copy where T = 1
    return (by_token.T @ x.flatten(0, 1)).reshape(shape)
