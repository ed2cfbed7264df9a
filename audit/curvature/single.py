"""The Hessian of one layer in single precision: good for directions, not for final numbers, and twice as quick.

H = mean Σ_{t,t'} AᵀA ⊗ x_t x_t'ᵀ with A the root of the Gauss–Newton curvature. A is scaled to its largest entry
before it is rounded, since a confident network's curvature of 1e-40 is still a curvature; and what is zero in every
sample (the margin of an image, a dead neuron) is left out of x, since H is zero there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.record import Record


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
        return pulled(self.x, (u @ self.A.mT) @ self.A, V.shape)

    def whole(self, V: Tensor) -> Tensor:
        """V [k, out, inputs in use] → [k, out, in], double precision."""
        filled = torch.zeros(*V.shape[:2], len(self.used), dtype=torch.float64, device=V.device)
        filled[:, :, self.used] = V.double()
        return filled


def single_precision(records: Iterable[Record], name: str, samples: int, room: int) -> SingleHessian | None:
    """H of the mean loss over `samples` in `records`; None where it does not fit into `room`, or has a curved tail."""
    left, xs = room, list[Tensor]()
    roots: list[tuple[Tensor, Tensor]] = []
    for record in records:
        layer = record.layers[name]
        left -= 8 * (layer.x.numel() + layer.J.numel())  # the parts, and all of them put together
        if left < 0 or layer.residual_times is not None:
            return None
        A = record.gauss_newton_root(name).flatten(2)
        largest = A.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
        xs.append(layer.x.float())
        roots.append(((A / largest).float(), largest))
    largest = torch.stack([size for _, size in roots]).max()
    A = torch.cat([part * (size / largest).float() for part, size in roots])
    x = torch.cat(xs)
    used = (x != 0).flatten(0, 1).any(0)
    x = x if bool(used.all()) else x[:, :, used]
    shape = layer.layer.out_features, x.shape[2]
    return SingleHessian(shape, float(largest.square() / samples), x, A, used, room)


def pushed(x: Tensor, V: Tensor) -> Tensor:
    """V x: x [n, T, in], V [k, out, in] → [n, k, T·out]."""
    (n, T, _), (k, out, _) = x.shape, V.shape
    return (x.flatten(0, 1) @ V.flatten(0, 1).T).reshape(n, T, k, out).transpose(1, 2).reshape(n, k, T * out)


def pulled(x: Tensor, U: Tensor, shape: torch.Size) -> Tensor:
    """Σ u xᵀ over samples and tokens: U [n, k, T·out] → [k, out, in]."""
    (n, T, _), (k, out, _) = x.shape, shape
    by_token = U.reshape(n, k, T, out).transpose(1, 2).reshape(n * T, k * out)  # no copy where T = 1
    return (by_token.T @ x.flatten(0, 1)).reshape(shape)
