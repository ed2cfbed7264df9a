"""The Hessian of the mean train loss with respect to one layer's weights: its products and its matrix.

z = W x + b is linear in W, so H_W = mean_i Σ_{t,t'} S_i^{tt'} ⊗ x_it x_it'ᵀ with S = ∂²l/∂z² = Jᵀ Λ J + R, and H·V
costs two matrix products with x and two thin ones with J; no gradient with respect to W is formed. vec(W) is row-major.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.curvature.formed_hessian import HessianMatrix, SingleHessian, single_precision, weights_jvp, weights_vjp
from audit.maths.blocks import DENSE_LIMIT, all_within
from audit.network import DenseLayer
from audit.network.capture import Batch, Capture
from audit.network.record import Record
from audit.network.records import Records
from audit.network.second_derivatives import few_products, vjps

SHARE = 4  # a basis of vectors, and single-precision copies, may each take this part of the room of the records


class Part(Protocol):
    """A chunk of samples as the Hessian sees it."""

    @property
    def x(self) -> Tensor:
        """[n, T, in], float64."""

    def curvature_times(self, V: Tensor) -> Tensor:
        """S V with S = ∂²l/∂z²; V [k, n, T, out] → the same shape, float64."""


@dataclass(frozen=True)
class Recorded:
    """A layer on a record's samples: S from the Jacobian that the record has."""

    record: Record
    name: str

    @property
    def x(self) -> Tensor:
        """[n, T, in], float64."""
        return self.record.layers[self.name].x.double()

    def curvature_times(self, V: Tensor) -> Tensor:
        """S V with S = Jᵀ Λ J + R; V [k, n, T, out] → the same shape, float64."""
        layer = self.record.layers[self.name]
        J, flat = layer.J.double().flatten(2), V.flatten(2).permute(1, 2, 0)  # [n, C, T·out]  [n, T·out, k]
        Λ_J_V = self.record.loss_function.curvature_times(self.record.f, self.record.y, J @ flat)
        S_V = (J.mT @ Λ_J_V).permute(2, 0, 1)
        return S_V.reshape(V.shape) if layer.residual_times is None else S_V.reshape(V.shape) + layer.residual_times(V)


class LayerHessian:
    """H of the mean loss over `records` with respect to the weights [out, in] of `layer`, in float64.

    Records with a curved tail are captured anew on every walk by `Records`. An eigenvector takes many walks, which need
    no Jacobian: behind a curved tail they go over the network's graph, held where it fits into the room.
    """

    def __init__(self, records: Records, layer: DenseLayer) -> None:
        self.layer, self.shape = layer, (layer.out_features, layer.in_features)
        self.dim = layer.out_features * layer.in_features
        self._records = records

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
        for part in self._parts():
            u = weights_jvp(part.x, directions.to(part.x.device))  # [n, k, T·out]
            moved = u.transpose(0, 1).reshape(u.shape[1], *part.x.shape[:2], -1)
            S_u = part.curvature_times(moved).flatten(2).transpose(0, 1)
            product = weights_vjp(part.x, S_u, directions.shape)
            H_V = product if H_V is None else H_V.add_(product)
        assert H_V is not None, "a split has samples"
        return (H_V / len(self._records)).reshape(V.shape)

    def rayleigh_quotients(self, v: Tensor) -> Tensor:
        """vᵀ H_i v of every sample i [n], v [out, in]; their mean is vᵀ H v."""
        quotients = []
        for part in self._parts():
            u = part.x @ v.double().to(part.x.device).T
            quotients.append((u * part.curvature_times(u[None])[0]).sum((1, 2)))
        return torch.cat(quotients)

    def single(self) -> SingleHessian | None:
        """H in single precision, two to three times as quick; None where the tail is curved or memory is short."""
        return single_precision(self._records, self.layer.name, len(self._records), self.room)

    @cached_property
    def formable(self) -> bool:
        """Whether the matrix itself may be had: of few weights, and without too many second derivatives."""
        if self.dim > DENSE_LIMIT:
            return False
        if self.layer.tokens == 1 or self.layer.patches is not None:  # convolutions have limits of their own
            return True
        units = self.layer.out_features * min(self.layer.tokens, self.layer.in_features)
        return few_products(units, len(self._records)) or not self._curved

    def dense(self) -> Tensor:
        """H itself [dim, dim]."""
        if self.dim > DENSE_LIMIT:
            raise ValueError(f"{self.layer.name}: {self.dim} weights are too many for a dense Hessian.")
        matrix = HessianMatrix(*self.shape)
        for record in self._records:
            matrix.add(record, self.layer.name)
        return matrix.whole() / len(self._records)

    @cached_property
    def _curved(self) -> bool:
        """Whether the network behind the layer is curved, as seen on the first samples."""
        return next(iter(self._records)).layers[self.layer.name].residual_times is not None

    def _parts(self) -> Iterable[Part]:
        if not self._curved:
            return (Recorded(record, self.layer.name) for record in self._records)
        return self._anew() if self._tails is None else self._tails

    @cached_property
    def _tails(self) -> list[CurvedTail] | None:
        """The graphs of all samples, or None where they do not fit into the room."""
        count = -(-len(self._records) // self._records.capture.full_size)
        return all_within(self._records.room, self._anew(), count, lambda part: part.bytes)

    def _anew(self) -> Iterator[CurvedTail]:
        return curved_tails(self._records.capture, self.layer, self._records.x, self._records.y)


# Products with the curvature of a curved tail, S = Jᵀ Λ J + R, without any Jacobian: for one layer, on one chunk.
# a = Jᵀ w can be differentiated in the layer's answer z and, being linear in it, in w. With w = ∂l/∂f, one backward
# pass over a·V gives R V in z and J V in w; Λ acts on the scores in closed form, and one more backward pass gives
# Jᵀ Λ J V. The C backward passes for J are never run: the way for iterations, which walk over the samples often.


class CurvedTail:
    """One layer on a chunk of samples, with the graph of everything behind it."""

    def __init__(self, capture: Capture, layer: DenseLayer, batch: Batch) -> None:
        self._layer, self._loss = layer, capture.loss
        self._rows, x, self._y = batch.rows, batch.x, batch.y[: batch.rows]
        with counted() as kept, sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
            forward = capture.run(x)
            self._f, calls = forward.f, forward.calls[layer.name]
            self._zs = [z for _, z in calls]
            self._scores = forward.f.detach().double()[: self._rows]
            self._w = torch.zeros_like(self._f.detach())
            self._w[: self._rows] = capture.loss.gradient(self._scores, self._y).to(self._f.dtype)
            self._w.requires_grad_()
            slopes = torch.autograd.grad(self._f, self._zs, self._w, create_graph=True, materialize_grads=True)
            self._a = torch.cat([layer.arrange(part, len(x)) for part in slopes], 1)  # [n, T, out]
        self.bytes = sum(kept.values())
        given = torch.cat([layer.arrange_input(part, len(x)) for part, _ in calls], 1)
        self.x = given[: self._rows].double()  # [rows, T, in]

    def curvature_times(self, V: Tensor) -> Tensor:
        """S V in float64; V [k, rows, T, out] → the same shape."""
        full = self._padded(V)
        *R_V, J_V = vjps(self._a, [*self._zs, self._w], full)
        J_V = J_V[:, : self._rows].double().permute(1, 2, 0)  # [rows, C, k]
        Λ_J_V = self._loss.curvature_times(self._scores, self._y, J_V)
        rest = vjps(self._f, self._zs, self._padded(Λ_J_V.permute(2, 0, 1)))
        n = len(self._f)
        total = [
            torch.cat([self._layer.arrange(part[k], n) for part in R_V], 1).double()
            + torch.cat([self._layer.arrange(part[k], n) for part in rest], 1).double()
            for k in range(len(V))
        ]
        return torch.stack(total)[:, : self._rows]

    def _padded(self, V: Tensor) -> Tensor:
        """V [k, rows, …] with zeros for the samples that only fill up a fixed batch."""
        full = torch.zeros(len(V), len(self._f), *V.shape[2:], dtype=self._f.dtype, device=self._f.device)
        full[:, : self._rows] = V
        return full


def curved_tails(capture: Capture, layer: DenseLayer, x: Tensor, y: Tensor) -> Iterator[CurvedTail]:
    """The layer on the samples x [n, …] with labels y, chunk after chunk, each with its graph."""
    alone = replace(capture, layers=[layer], to_input=False)
    return (CurvedTail(alone, layer, batch) for batch in alone.batches(x, y))


@contextmanager
def counted() -> Iterator[dict[int, int]]:
    """Bytes of everything that the graph recorded meanwhile holds on to, by its place in memory."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an operator that saves its own answer would otherwise keep itself alive for ever

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept
