"""Products with the curvature of a curved tail, S = Jᵀ Λ J + R, without any Jacobian: for one layer, on one chunk.

a = Jᵀ w can be differentiated in the layer's answer z and, being linear in it, in w. With w = ∂l/∂f, one backward pass
over a·V gives R V in z and J V in w; Λ acts on the scores in closed form, and one more backward pass gives Jᵀ Λ J V.
The C backward passes for J are never run: the way for iterations, which walk over the samples again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.network.capture import Capture
from audit.network.layers import DenseLayer
from audit.network.second_derivatives import pulled


class BentTail:
    """One layer on a chunk of samples, with the graph of everything behind it."""

    def __init__(self, capture: Capture, layer: DenseLayer, rows: int, x: Tensor, y: Tensor) -> None:
        self._layer, self._loss, self._rows = layer, capture.loss, rows
        with counted() as kept, sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
            passed = capture.run(x)
            self._f, calls = passed.f, passed.calls[layer.name]
            self._zs = [z for _, z in calls]
            self._scores = passed.f.detach().double()[:rows]
            self._w = torch.zeros_like(self._f.detach())
            self._w[:rows] = capture.loss.gradient(self._scores, y[:rows]).to(self._f.dtype)
            self._w.requires_grad_()
            slopes = torch.autograd.grad(self._f, self._zs, self._w, create_graph=True, materialize_grads=True)
            self._a = torch.cat([layer.arrange(part, len(x)) for part in slopes], 1)  # [n, T, out]
        self.bytes = sum(kept.values())
        self.x = torch.cat([layer.arrange_input(part, len(x)) for part, _ in calls], 1)[:rows].double()  # [rows, T, in]

    def curvature_times(self, V: Tensor) -> Tensor:
        """S V in float64; V [k, rows, T, out] → the same shape."""
        full = self._padded(V)
        *R_V, J_V = pulled(self._a, [*self._zs, self._w], full)
        bent = self._loss.curvature_times(self._scores, J_V[:, : self._rows].double().permute(1, 2, 0))  # [rows, C, k]
        rest = pulled(self._f, self._zs, self._padded(bent.permute(2, 0, 1)))
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


def bent_tails(capture: Capture, layer: DenseLayer, x: Tensor, y: Tensor) -> Iterator[BentTail]:
    """Chunk after chunk."""
    alone = replace(capture, layers=[layer], to_input=False)
    for _, rows, xs, ys in alone.batches(x, y):
        yield BentTail(alone, layer, rows, xs, ys)


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
