"""What one pass over the network leaves on the table for the measures.

A `Record` holds a chunk of samples, not the whole split: measures fold over the stream of records, so memory stays flat
in the number of samples. n samples in the chunk, C scores, T tokens (1 for a plain dense layer; a layer called k times
on one sample has the tokens of all its calls, one after the other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.layers import DenseLayer
from audit.loss import Loss


@dataclass(frozen=True)
class LayerRecord:
    """One dense layer z = W x + b on a chunk of samples."""

    layer: DenseLayer
    x: Tensor  # [n, T, in]       what the layer was given
    z: Tensor  # [n, T, out]      what it answered
    J: Tensor  # [n, C, T, out]   ∂f/∂z; empty (C = 0) where only a forward pass was asked for
    delta: Tensor  # [n, T, out]  ∂l/∂z = Jᵀ ∂l/∂f, float64
    residual_times: Callable[[Tensor], Tensor] | None
    """V [n, T, out] → R V with R = Σ_c (∂l/∂f_c) ∂²f_c/∂z², the curvature that Gauss–Newton leaves out; None where the
    network after z is piecewise linear, so that R = 0."""


@dataclass(frozen=True)
class Record:
    """A chunk of samples after one forward and C backward passes."""

    start: int  # position of the chunk's first sample in the split
    f: Tensor  # [n, C]     scores, float64
    y: Tensor  # [n] or [n, C]
    loss: Tensor  # [n]     float64
    gradient: Tensor  # [n, C]  ∂l/∂f, float64, without cancellation
    layers: Mapping[str, LayerRecord]  # by DenseLayer.name
    input_jacobian: Callable[[], Tensor] | None  # [n, C, D]  ∂f/∂input; None for integer inputs
    loss_function: Loss

    def curvature_times(self, name: str, V: Tensor) -> Tensor:
        """S V with S = ∂²l/∂z² of layer `name`, exact; V [n, T, out] → [n, T, out], float64.

        S = Jᵀ Λ J + R: the Gauss–Newton part from the stored J, and the rest by double backward where there is any.
        """
        layer = self.layers[name]
        J = layer.J.double()
        JV = torch.einsum("ncto,nto->nc", J, V)
        S_V = torch.einsum("ncto,nc->nto", J, self.loss_function.curvature_times(self.f, JV))
        return S_V if layer.residual_times is None else S_V + layer.residual_times(V).double()

    def curvature(self, name: str) -> Tensor:
        """S itself [n, T·out, T·out], one column at a time where the tail is curved."""
        layer = self.layers[name]
        n, C, T, out = layer.J.shape
        J = layer.J.double().reshape(n, C, T * out)
        S = torch.einsum("nci,ncj->nij", J, self.loss_function.curvature_times(self.f, J))
        if layer.residual_times is not None:
            units = torch.eye(T * out, dtype=layer.z.dtype, device=layer.z.device)
            columns = [layer.residual_times(unit.expand(n, -1).reshape(n, T, out)) for unit in units]
            S = S + torch.stack([column.reshape(n, T * out).double() for column in columns], dim=2)
        return S
