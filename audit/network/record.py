"""What one pass over the network leaves for the measures: records, and products of theirs that several measures share.

A `Record` holds a chunk of samples, not the whole split: measures fold over the stream of records, so memory stays flat
in the number of samples. n samples in the chunk, C scores, T tokens (1 for a plain dense layer; a layer called k times
on one sample has the tokens of all its calls, one after the other).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from audit.maths.blocks import HELD, RESIDUAL_COLUMNS, blocks, in_blocks
from audit.network import DenseLayer
from audit.network.backward import Calls
from audit.network.closed_forms import ClosedForms, Gradients, SquareSums
from audit.network.loss import Loss
from audit.network.parameter_gradients import SampleGradients


@dataclass(frozen=True)
class LayerRecord:
    """One dense layer z = W x + b on a chunk of samples."""

    layer: DenseLayer
    W: Tensor  # [out, in]
    x: Tensor  # [n, T, in]       what the layer was given
    z: Tensor  # [n, T, out]      what it answered
    J: Tensor  # [n, C, T, out]   ∂f/∂z; C = 0 where only a forward pass was asked for
    gradient: Tensor  # [n, C]    ∂l/∂f, float64
    narrow: Tensor | None  # [out, out]  J times it has the singular values of J W; None where that saves nothing
    curvature: str  # "exact", or "gauss-newton" where the network after z has no second derivative to be had
    residual_times: Callable[[Tensor], Tensor] | None
    """V […, n, T, out] → R V with R = Σ_c (∂l/∂f_c) ∂²f_c/∂z², the curvature that Gauss–Newton leaves out; None where
    the network after z is piecewise linear on these samples, so that R = 0."""
    JW: Tensor | None = None  # [n, C, T, in]  J W, float64, where the backward passes have formed it on their way

    @property
    def delta(self) -> Tensor:
        """∂l/∂z = Jᵀ ∂l/∂f  [n, T, out], float64."""
        return torch.einsum("ncto,nc->nto", self.J.double(), self.gradient)

    def residual_columns(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Columns (t, o) of R: one token t, a few outputs o [m], and R's columns [m, n, T, out]."""
        if self.residual_times is None:
            return
        n, T, out = self.z.shape
        units = torch.eye(out, dtype=torch.float64, device=self.z.device)
        for t in range(T):
            for some in blocks(out, 1, RESIDUAL_COLUMNS):
                outputs = torch.arange(some.start, some.stop, device=self.z.device)
                V = units.new_zeros(len(outputs), n, T, out)
                V[:, :, t] = units[outputs, None]
                yield t, outputs, self.residual_times(V)

    def residual(self) -> Tensor | None:
        """R itself [n, T·out, T·out]; None where R = 0."""
        if self.residual_times is None:
            return None
        return torch.cat([columns.flatten(2) for _, _, columns in self.residual_columns()]).permute(1, 2, 0)


@dataclass(frozen=True)
class Record:
    """A chunk of samples after one forward and C backward passes."""

    start: int  # position of the chunk's first sample in the split
    f: Tensor  # [n, C]     scores, float64
    y: Tensor  # [n], [n, C], or of positions [n, T]
    loss: Tensor  # [n]     float64
    gradient: Tensor  # [n, C]  ∂l/∂f, float64, without cancellation
    layers: Mapping[str, LayerRecord]  # by DenseLayer.name
    entrance: str | None  # name of the layer that everything enters through: ∂f/∂input is its J W
    loss_function: Loss
    by_input: Tensor | None  # [C, ≥ n, …]  ∂f/∂input from the backward passes, where there is no such layer
    others: ChunkGradients | None  # of the parameters outside the dense layers; None after a forward pass alone

    def to_keep(self) -> Record:
        """The record without what can be found again from the rest: what a pass leaves beside it is large."""
        layers = {name: replace(layer, JW=None) for name, layer in self.layers.items()}
        return replace(self, layers=layers, others=None if self.others is None else replace(self.others, left=None))

    def bytes(self) -> int:
        """What keeping this record costs, its autograd graph aside."""
        held = [self.f, self.loss, self.gradient]
        held += [part for layer in self.layers.values() for part in (layer.x, layer.z, layer.J)]
        held += [] if self.by_input is None else [self.by_input]
        return sum(part.numel() * part.element_size() for part in held)

    def has_graph(self) -> bool:
        """Whether the network after some layer is curved, so that the record holds on to its forward pass."""
        return any(layer.residual_times is not None for layer in self.layers.values())

    def gauss_newton_root(self, name: str) -> Tensor:
        """A [n, C, T, out], float64, with Jᵀ Λ J = Aᵀ A: the Gauss–Newton part of S = ∂²l/∂z²."""
        return self.loss_function.curvature_root_times(self.f, self.y, self.layers[name].J.double())

    def gauss_newton_weight_root(self, name: str) -> Iterator[Tensor]:
        """G = Σ_t a_t x_tᵀ [m, C, out, in], float64, a few samples m at a time: Σ_c vec G_c vec G_cᵀ is H_W's part.

        The way for many tokens: nothing here is as large as a matrix between tokens.
        """
        layer, A = self.layers[name], self.gauss_newton_root(name)
        for part in blocks(len(A), A.shape[1] * layer.layer.in_features * layer.layer.out_features, HELD):
            yield torch.einsum("ncto,nti->ncoi", A[part], layer.x[part].double())

    def curvature_times(self, name: str, V: Tensor) -> Tensor:
        """S V with S = ∂²l/∂z² = Jᵀ Λ J + R of layer `name`; V [n, T, out] → [n, T, out], float64."""
        layer = self.layers[name]
        J = layer.J.double()
        JV = torch.einsum("ncto,nto->nc", J, V)
        S_V = torch.einsum("ncto,nc->nto", J, self.loss_function.curvature_times(self.f, self.y, JV))
        return S_V if layer.residual_times is None else S_V + layer.residual_times(V)

    def curvature(self, name: str) -> Tensor:
        """S itself [n, T·out, T·out], float64."""
        A = self.gauss_newton_root(name).flatten(2)
        S = torch.einsum("nci,ncj->nij", A, A)
        R = self.layers[name].residual()
        return S if R is None else S + R


class LayerProducts:
    """Products of one layer's record that several measures ask for: each formed once, when it is first asked for."""

    def __init__(self, record: Record, name: str) -> None:
        self.record, self.layer = record, record.layers[name]

    @cached_property
    def JW(self) -> Tensor:
        """J W, what the layer carries of ∂f/∂x  [n, C, T, in], float64."""
        return self.layer.J.double() @ self.layer.W.double() if self.layer.JW is None else self.layer.JW

    @cached_property
    def local_map(self) -> Tensor:
        """K [n, C, …] with the singular values of J W, float64: J W itself, or narrower."""
        return (self.JW if self.layer.narrow is None else self.layer.J.double() @ self.layer.narrow).flatten(2)

    @cached_property
    def local_gram(self) -> Tensor:
        """K Kᵀ  [n, C, C]."""
        return self.local_map @ self.local_map.mT

    @cached_property
    def squared_jacobian(self) -> Tensor:
        """Σ_ct J²  [n, out], float64."""
        return in_blocks(lambda J: J.double().square().sum((1, 2)), self.layer.J)

    @cached_property
    def gauss_newton_diagonal(self) -> Tensor:
        """The diagonal of Jᵀ Λ J  [n, T·out], float64."""
        record, diagonal = self.record, self.record.loss_function.curvature_diagonal
        return in_blocks(lambda f, y, J: diagonal(f, y, J.double()), record.f, record.y, self.layer.J.flatten(2))


class Products:
    """The products of a record's layers, and the map from the network's input to its scores.

    Whoever walks over records makes one for each, hands it round with the record and drops it before the next.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self.layers = {name: LayerProducts(record, name) for name in record.layers}

    @cached_property
    def input_map(self) -> tuple[Tensor, Tensor] | None:
        """K [n, C, …] with the singular values of ∂f/∂input, float64, and K Kᵀ; None for inputs without derivative."""
        if self._record.entrance is not None:
            first = self.layers[self._record.entrance]
            return first.local_map, first.local_gram
        if self.input_jacobian is None:
            return None
        K = self.input_jacobian.double()
        return K, K @ K.mT

    @property
    def input_jacobian(self) -> Tensor | None:
        """∂f/∂input [n, C, D]; None for integer inputs, and where nobody wanted it."""
        record = self._record
        if record.entrance is not None:
            return self.layers[record.entrance].JW.flatten(2)  # [n, C, T, in] → [n, C, T·in]
        return None if record.by_input is None else record.by_input.transpose(0, 1)[: len(record.f)].flatten(2)


# Gradients of the parameters outside the dense layers, on one chunk of samples.
#
# The backward passes that a record is made from run past most of those parameters anyway, and what they leave there
# goes with the record. What they cannot see, or what is no longer kept, is found by running the samples again.


WORTHWHILE = 0.5  # share of a chunk's samples, below which they are run again by themselves


@dataclass(frozen=True)
class PassGradients:
    """What a pass leaves of the parameters that have closed forms."""

    squares: SquareSums
    gradients: Callable[[Tensor, Tensor], Gradients]
    """Samples `rows` of the chunk, ∂l/∂f [rows, C] → ∂l/∂θ [rows, *shape], by one more backward pass."""


class OtherParameters:
    """The parameters outside the dense layers of a network; how each is found is tried on the first samples seen."""

    def __init__(self, network: nn.Module, names: Sequence[str], fixed_batch: int | None) -> None:
        self._network, self._names, self._batch = network, names, fixed_batch
        self._found: SampleGradients | None = None

    def ways(self, x: Tensor) -> SampleGradients:
        """How the gradient of each is found."""
        if self._found is None:
            self._found = SampleGradients(self._network, self._names, x, self._batch)
        return self._found

    def closed(self, x: Tensor) -> ClosedForms | None:
        """Those whose gradients follow from what backward passes leave on their way."""
        closed = self.ways(x).closed if self._names else None
        return closed if closed is not None and closed.paths else None


@dataclass(frozen=True)
class ChunkGradients:
    """The gradients of those parameters on one chunk of samples."""

    others: OtherParameters
    x: Tensor  # the samples, as they are stored
    left: PassGradients | None  # by the pass that the record was made from; None: the samples are run again

    def squares(self) -> tuple[Tensor, Tensor]:
        """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of every sample i [n], float64."""
        return self.others.ways(self.x).squares(self.x, None if self.left is None else self.left.squares)

    def gradients(self, rows: Tensor, cotangent: Tensor) -> Gradients:
        """∂(cotangent_i · f_i)/∂θ for every sample i of `rows`; cotangent [rows, C] → for each name [rows, *shape]."""
        left = self.left if len(rows) >= WORTHWHILE * len(self.x) else None
        return self._formed(rows, cotangent, None if left is None else left.gradients(rows, cotangent))

    def loss_gradients(self, rows: Tensor, gradient: Tensor) -> Gradients:
        """The same for ∂l/∂f of the record's own loss, which the pass may have left."""
        if self.left is None or self.left.squares.combined is None:
            return self.gradients(rows, gradient)
        return self._formed(rows, gradient, {name: of[rows] for name, of in self.left.squares.combined.items()})

    def _formed(self, rows: Tensor, cotangent: Tensor, closed: Gradients | None) -> Gradients:
        return self.others.ways(self.x).gradients(self.x[rows.to(self.x.device)], cotangent, closed)


def left_by_pass(f: Tensor, calls: Calls, sums: SquareSums) -> PassGradients:
    """What a forward pass with scores f [n, C] leaves; n counts what only fills up a fixed batch, too."""

    def gradients(rows: Tensor, cotangent: Tensor) -> Gradients:
        full = torch.zeros_like(f)
        full[rows] = cotangent.to(f.dtype)
        signals = torch.autograd.grad(f, sums.answers, full, retain_graph=True, materialize_grads=True)
        return sums.forms.gradients(calls, signals, rows)

    return PassGradients(sums, gradients)
