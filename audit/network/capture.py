"""The one pass: forward once, backward once per score, for all dense layers at once.

z = W x + b is linear in W, so x and J = ∂f/∂z hold everything that a measure can ask about W; no gradient with respect
to a weight is ever formed. Samples of a batch do not mix (checked before), so the backward pass of Σ_i f_ic gives
∂f_ic/∂z_i of every sample i at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.blocks import FORWARD_CHUNKS, FORWARD_SAMPLES, blocks
from audit.maths.decompositions import narrow_factor
from audit.model.base import as_fed, filled
from audit.network import DenseLayer, entrance
from audit.network.backward import Calls, ForwardPass, Jacobians, by_sample, jacobians, keeping
from audit.network.closed_forms import ClosedForms, SquareSums
from audit.network.hooks import has_convolutions, hooked, scores
from audit.network.loss import Loss
from audit.network.parameter_gradients import other_parameters
from audit.network.record import ChunkGradients, LayerRecord, OtherParameters, Record, left_by_pass
from audit.network.second_derivatives import NO_RESIDUALS, Residuals, find_residuals, is_piecewise_linear


@dataclass(frozen=True)
class Batch:
    """Samples on their way through the network."""

    start: int  # position of the first one in the split
    stored: Tensor  # [rows, …] as they are stored
    x: Tensor  # [≥ rows, …] as they are fed: a network with a fixed batch has its last one filled up with repeats
    y: Tensor  # of the same

    @property
    def rows(self) -> int:
        """Samples that count."""
        return len(self.stored)


@dataclass(eq=False)
class Capture:
    """How to run a network over samples. What it finds out about the network, it finds out once, when it needs it."""

    network: nn.Module
    layers: Sequence[DenseLayer]
    loss: Loss
    chunk: int  # samples at once
    fixed_batch: int | None = None  # a batch size the network insists on
    side_by_side: bool = True  # whether the backward passes of all scores may run at once: quicker, but takes memory
    to_input: bool = True  # whether derivatives in inputs are wanted; if not, backward passes stop at the first layer
    residuals: bool = True  # whether the curvature that Gauss–Newton leaves out is looked for, layer by layer

    def forward(self, x: Tensor, y: Tensor) -> Iterator[Record]:
        """Scores, losses and layer inputs of x [n, …] with labels y, without any backward pass."""
        return (self._forward(batch) for batch in self.batches(x, y, self.forward_size))

    def full(self, x: Tensor, y: Tensor, squares: bool = False) -> Iterator[Record]:
        """The whole records of x [n, …] with labels y, after one forward and C backward passes.

        Their curvature products need the autograd graph, which lives as long as the record. With `squares`, the
        backward passes leave those of the other parameters' gradients on their way to the input.
        """
        closed = self._others.closed(x) if squares and self.to_input else None
        return (self._full(batch, closed) for batch in self.batches(x, y))

    @torch.no_grad()
    def _forward(self, batch: Batch) -> Record:
        forward = self.run(batch.x)
        layers = {layer.name: self._forward_record(layer, batch.rows, forward) for layer in self.layers}
        return self._record(batch, forward, self._gradient(batch, forward), layers)

    def _full(self, batch: Batch, closed: ClosedForms | None) -> Record:
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
            forward = self.run(batch.x, self._wants_input(batch.x) and self._entrance is None, closed)
            if forward.leaf is None and self._wants_input(batch.x) and not self._enters_unchanged(batch.x, forward):
                forward = self.run(batch.x, True, closed)
            side_by_side = self.side_by_side and not self._convolves  # convolutions are quicker one by one
            gradient = self._gradient(batch, forward)
            sums = None if closed is None else SquareSums(closed, forward.others, batch.rows, gradient)
            found = jacobians(forward, self.layers, side_by_side, sums)
            left = None if sums is None else left_by_pass(forward.f, forward.others, sums)
            layers = {
                layer.name: self._full_record(layer, gradient, forward, found, residuals)
                for group in self._groups
                for residuals in [self._residuals(group, forward, gradient)]
                for layer in group
            }
        others = ChunkGradients(self._others, batch.stored, left)
        return self._record(batch, forward, gradient, layers, found, others)

    def _gradient(self, batch: Batch, forward: ForwardPass) -> Tensor:
        """∂l/∂f [rows, C], float64."""
        return self.loss.gradient(forward.f.detach().double()[: batch.rows], batch.y[: batch.rows])

    @property
    def forward_size(self) -> int:
        """Samples at once where no backward pass follows: few of them waste time, and their memory is small."""
        wide = max(self.chunk, min(FORWARD_SAMPLES, FORWARD_CHUNKS * self.chunk))
        return self.fixed_batch or (self.chunk if has_convolutions(self.network) else wide)

    @property
    def full_size(self) -> int:
        """Samples at once in the whole pass."""
        return self.fixed_batch or self.chunk

    def batches(self, x: Tensor, y: Tensor, size: int = 0) -> Iterator[Batch]:
        """The samples x [n, …] with labels y, `size` at once; as many as the whole pass takes where nothing is said."""
        for rows in blocks(len(x), 1, size or self.full_size):
            xs, ys = (filled(part[rows], self.fixed_batch or 1) for part in (x, y))
            fed = as_fed(self.network, xs)  # a copy, since a network may change what it is given
            yield Batch(rows.start, x[rows], fed.clone() if fed is xs else fed, ys.to(fed.device))

    def run(self, x: Tensor, needs_input: bool = False, closed: ClosedForms | None = None) -> ForwardPass:
        """One forward pass, with the input as a leaf where its gradient is wanted."""
        calls: Calls = defaultdict(list)
        entries: dict[str, list[Tensor]] = defaultdict(list)
        leaf = x.clone().requires_grad_() if needs_input else None

        def enter(name: str) -> Callable[..., Tensor | None]:
            def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor | None:
                if not inputs[0].requires_grad:
                    return None
                entries[name].append(inputs[0].view_as(inputs[0]))  # of this layer alone, whoever else uses the input
                return entries[name][-1]

            return hook

        watched: AbstractContextManager[Calls] = nullcontext({}) if closed is None else closed.watched()
        with (
            watched as others,
            hooked(
                self.network,
                {layer.module: keeping(calls, layer.name) for layer in self.layers},
                before={layer.module: enter(layer.name) for layer in self.layers if self._has_entry(layer)},
            ),
        ):
            f = scores(self.network, x if leaf is None else leaf)
        return ForwardPass(f, calls, dict(entries), leaf, others)

    def _has_entry(self, layer: DenseLayer) -> bool:
        """Whether J W is taken from the backward passes, which form it on their way, in the network's arithmetic."""
        ours = layer.patches is None and not layer.has_wide_input
        return ours and self.to_input and layer.weight(self.network).dtype == torch.float64

    def _wants_input(self, x: Tensor) -> bool:
        return self.to_input and x.is_floating_point()

    def _enters_unchanged(self, x: Tensor, forward: ForwardPass) -> bool:
        """Whether the first layer is given these very inputs: the few samples it was found with may not tell."""
        assert self._entrance is not None
        given = forward.calls[self._entrance.name][0][0]
        return torch.equal(given.flatten(), x.flatten().to(given.dtype))

    def _record(
        self,
        batch: Batch,
        forward: ForwardPass,
        gradient: Tensor,
        layers: dict[str, LayerRecord],
        found: Jacobians | None = None,
        others: ChunkGradients | None = None,
    ) -> Record:
        f, y = forward.f.detach().double()[: batch.rows], batch.y[: batch.rows]
        return Record(
            start=batch.start,
            f=f,
            y=y,
            loss=self.loss.value(f, y),
            gradient=gradient,
            layers=layers,
            entrance=None if found is None else self._entrance_name(found),
            loss_function=self.loss,
            by_input=None if found is None else found.by_input,
            others=others,
        )

    def _forward_record(self, layer: DenseLayer, rows: int, forward: ForwardPass) -> LayerRecord:
        x, z = self._given_and_answered(layer, rows, forward)
        no_jacobian = z.new_empty(rows, 0, *z.shape[1:])
        W, no_gradient = layer.weight(self.network), z.new_empty(rows, 0)
        return LayerRecord(layer, W, x, z, no_jacobian, no_gradient, None, "exact", None)

    def _full_record(
        self, layer: DenseLayer, gradient: Tensor, forward: ForwardPass, found: Jacobians, residuals: Residuals
    ) -> LayerRecord:
        (n, rows), name = (len(forward.f), len(gradient)), layer.name
        x, z = self._given_and_answered(layer, rows, forward)
        J = _joined([by_sample(layer, J, n, layer.out_features) for J in found.by_layer[name]], 2)[:rows]
        W, R, JW = layer.weight(self.network), residuals.by_layer.get(name), None
        if name in found.by_entry and len(found.by_entry[name]) == len(forward.calls[name]):
            JW = _joined([by_sample(layer, K, n, layer.in_features) for K in found.by_entry[name]], 2)[:rows]
        return LayerRecord(layer, W, x, z, J, gradient, self._narrow.get(name), residuals.kind, R, JW)

    def _given_and_answered(self, layer: DenseLayer, rows: int, forward: ForwardPass) -> tuple[Tensor, Tensor]:
        """What the layer was given, [rows, T, in], and answered, [rows, T, out], over all its calls."""
        n, calls = len(forward.f), forward.calls[layer.name]
        x = _joined([layer.arrange_input(x, n) for x, _ in calls], 1)[:rows]
        return x, _joined([layer.arrange(z.detach(), n) for _, z in calls], 1)[:rows]

    def _entrance_name(self, found: Jacobians) -> str | None:
        """Of the layer whose J W is ∂f/∂input, where no backward pass went down to the input."""
        if found.by_input is not None or self._entrance is None or not self.to_input:
            return None
        return self._entrance.name

    def _residuals(self, group: list[DenseLayer], forward: ForwardPass, gradient: Tensor) -> Residuals:
        if not self.residuals or self._piecewise_linear:
            return NO_RESIDUALS
        return find_residuals(group, forward.f, gradient, forward.calls)

    @cached_property
    def _others(self) -> OtherParameters:
        return OtherParameters(self.network, other_parameters(self.network, self.layers), self.fixed_batch)

    @cached_property
    def _piecewise_linear(self) -> bool:
        return is_piecewise_linear(self.network)

    @cached_property
    def _convolves(self) -> bool:
        """Whether backward passes may run through convolutions; most are before the first dense layer."""
        return self.to_input and has_convolutions(self.network)

    @cached_property
    def _groups(self) -> list[list[DenseLayer]]:
        """Dense layers and convolutions apart: what lies between those must not change what is said of these."""
        convolutions = [layer for layer in self.layers if layer.patches is not None]
        dense = [layer for layer in self.layers if layer.patches is None]
        return [group for group in (dense, convolutions) if group]

    @cached_property
    def _entrance(self) -> DenseLayer | None:
        return entrance(self.layers)

    @cached_property
    def _narrow(self) -> dict[str, Tensor]:
        """By layer name, where J W is wanted and wide."""
        wide = [layer for layer in self.layers if layer.has_wide_input and layer.patches is None and self.to_input]
        return {layer.name: narrow_factor(layer.weight(self.network).double()) for layer in wide}


def _joined(parts: list[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
