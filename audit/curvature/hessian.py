"""The Hessian of the mean train loss with respect to one layer's weights: its products and its matrix.

z = W x + b is linear in W, so H_W = mean_i Σ_{t,t'} S_i^{tt'} ⊗ x_it x_it'ᵀ with S = ∂²l/∂z² = Jᵀ Λ J + R, and H·V
costs two matrix products with x and two thin ones with J; no gradient with respect to W is formed. vec(W) is row-major.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from audit.curvature.matrix import HessianMatrix
from audit.curvature.single import SingleHessian, pulled, pushed, single_precision
from audit.layers import DenseLayer
from audit.record import Record
from audit.records import Records

DENSE_LIMIT = 4096  # weights up to which the matrix itself is formed (128 MB)
GRAPH_FACTOR = 4  # what a record with its autograd graph takes, in multiples of the record alone
SHARE = 4  # a basis of vectors, and single-precision copies, may each take this part of the room of the records


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

    @property
    def dtype(self) -> torch.dtype:
        """Of what `times` gives."""
        return torch.float64

    @property
    def room(self) -> int:
        """Bytes that a basis of vectors may take."""
        return self._records.room // SHARE

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

    def single(self) -> SingleHessian | None:
        """H in single precision, two to three times as quick; None where the tail is curved or memory is short."""
        return single_precision(self._walk(), self.layer.name, len(self._records), self.room)

    def dense(self) -> Tensor:
        """H itself [dim, dim]."""
        if self.dim > DENSE_LIMIT:
            raise ValueError(f"{self.layer.name}: {self.dim} weights are too many for a dense Hessian.")
        matrix = HessianMatrix(*self.shape)
        for record in self._walk():
            matrix.add(record, self.layer.name)
        return matrix.whole() / len(self._records)

    def _walk(self) -> Iterator[Record]:
        if self._held is not None:
            yield from self._held
            return
        held: list[Record] | None = []
        left = self._records.room
        for record in self._records:
            if held is not None:
                left -= GRAPH_FACTOR * record.bytes() if record.has_graph() else left + 1
                held = [*held, record] if left >= 0 else None
            yield record
        self._held = held


def _product(record: Record, name: str, V: Tensor) -> Tensor:
    """Σ over the record's samples of (S (V x)) xᵀ; V [k, out, in] → [k, out, in]."""
    layer = record.layers[name]
    x, J = layer.x.double(), layer.J.double().flatten(2)  # [n, T, in]  [n, C, T·out]
    u = pushed(x, V.to(x.device))
    S_u = record.loss_function.curvature_times(record.f, J @ u.mT).mT @ J
    if layer.residual_times is not None:
        rest = [layer.residual_times(part.reshape(layer.z.shape)) for part in u.unbind(1)]
        S_u = S_u + torch.stack([part.flatten(1) for part in rest], 1)
    return pulled(x, S_u, V.shape)
