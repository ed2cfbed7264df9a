"""The Hessian of one layer in single precision: good for directions, not for final numbers, and twice as quick.

H = mean Σ_{t,t'} AᵀA ⊗ x_t x_t'ᵀ with A the root of the Gauss–Newton curvature. A is scaled to its largest entry
before it is rounded, since a confident network's curvature of 1e-40 is still a curvature; and what is zero in every
sample (the margin of an image, a dead neuron) is left out of x, since H is zero there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.network.record import Record

CACHED = 1 << 17  # numbers (½ MB) of A that are used twice while the processor's cache holds them


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
        u = pushed(self.x, V.to(self.x.device))
        rows = max(1, CACHED // self.A[0].numel())
        for part, A in zip(torch.split(u, rows), torch.split(self.A, rows), strict=True):
            torch.bmm(part @ A.mT, A, out=part)
        return pulled(self.x, u, V.shape)

    def whole(self, V: Tensor) -> Tensor:
        """V [k, out, inputs in use] → [k, out, in], double precision."""
        filled = torch.zeros(*V.shape[:2], len(self.used), dtype=torch.float64, device=V.device)
        filled[:, :, self.used] = V.double()
        return filled


def single_precision(records: Iterable[Record], name: str, samples: int, room: int) -> SingleHessian | None:
    """H of the mean loss over `samples` in `records`; None where it does not fit into `room`, or has a curved tail."""
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
    step, start = max(1, CACHED // J[0].numel()), record.start
    for f, part in zip(torch.split(record.f, step), torch.split(J, step), strict=True):
        root = record.loss_function.curvature_root_times(f, part.double()).flatten(2)
        largest = torch.stack(torch.aminmax(root)).abs().max().clamp(min=torch.finfo(torch.float64).tiny)
        rows = slice(start, start + len(root))
        A[rows] = root.div_(largest)
        start = rows.stop
        yield rows, largest


def pushed(x: Tensor, V: Tensor) -> Tensor:
    """V x: x [n, T, in], V [k, out, in] → [n, k, T·out]."""
    (n, T, _), (k, out, _) = x.shape, V.shape
    return (x.flatten(0, 1) @ V.flatten(0, 1).T).reshape(n, T, k, out).transpose(1, 2).reshape(n, k, T * out)


def pulled(x: Tensor, U: Tensor, shape: torch.Size) -> Tensor:
    """Σ u xᵀ over samples and tokens: U [n, k, T·out] → [k, out, in]."""
    (n, T, _), (k, out, _) = x.shape, shape
    by_token = U.reshape(n, k, T, out).transpose(1, 2).reshape(n * T, k * out)  # no copy where T = 1
    return (by_token.T @ x.flatten(0, 1)).reshape(shape)
