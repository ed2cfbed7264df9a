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
from audit.network.backward import Calls, Jacobians, Passed, by_sample, jacobians, keeping
from audit.network.chunk_gradients import ChunkGradients, Others, handed_over
from audit.network.closed_forms import ClosedForms, SquareSums
from audit.network.hooks import has_convolutions, hooked, scores
from audit.network.layers import DenseLayer, entrance
from audit.network.loss import Loss
from audit.network.parameter_gradients import other_parameters
from audit.network.record import LayerRecord, Record
from audit.network.second_derivatives import NO_RESIDUALS, Residuals, find_residuals, is_piecewise_linear


@dataclass(frozen=True)
class Capture:
    """How to run a network over samples: built once, then called on each split."""

    network: nn.Module
    layers: Sequence[DenseLayer]
    loss: Loss
    chunk: int  # samples at once
    fixed_batch: int | None = None  # a batch size the network insists on
    side_by_side: bool = True  # whether the backward passes of all scores may run at once: quicker, but takes memory
    to_input: bool = True  # whether derivatives in inputs are wanted; if not, backward passes stop at the first layer

    def forward(self, x: Tensor, y: Tensor) -> Iterator[Record]:
        """Scores, losses and layer inputs, without any backward pass."""
        for start, rows, xs, ys in self.batches(x, y, self.forward_size):
            with torch.no_grad():
                record = self._record(start, rows, ys, self.run(xs), None, None)
            yield record

    def full(self, x: Tensor, y: Tensor, squares: bool = False) -> Iterator[Record]:
        """The whole record. Its curvature products need the autograd graph, which lives until the next record.

        With `squares`, the backward passes leave those of the other parameters' gradients on their way to the input.
        """
        for start, rows, xs, ys in self.batches(x, y):
            with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
                closed = self._others.closed(x) if squares and self.to_input else None
                passed = self.run(xs, self._input_jacobian_needs_backward(xs), closed)
                if passed.leaf is None and self._wants_input(xs) and not self._enters_unchanged(xs, passed.calls):
                    passed = self.run(xs, True, closed)
                record = self._passed_back(start, x[start : start + rows], ys, passed, closed)
                del passed  # its graph is the record's now, to let go of
            yield record

    def _passed_back(self, start: int, x: Tensor, y: Tensor, passed: Passed, closed: ClosedForms | None) -> Record:
        """The record after the backward passes; x its samples as they were given."""
        side_by_side = self.side_by_side and not self._convolves  # convolutions are quicker one by one
        gradient = self.loss.gradient(passed.f.detach().double()[: len(x)], y[: len(x)])
        sums = None if closed is None else SquareSums(closed, passed.others, len(x), gradient)
        found = jacobians(passed, self.layers, side_by_side, sums)
        handed = None if sums is None else handed_over(passed.f, passed.others, sums)
        return self._record(start, len(x), y, passed, found, ChunkGradients(self._others, x, handed))

    @property
    def forward_size(self) -> int:
        """Samples at once where no backward pass follows: few of them waste time, and their memory is small."""
        wide = max(self.chunk, min(FORWARD_SAMPLES, FORWARD_CHUNKS * self.chunk))
        return self.fixed_batch or (self.chunk if has_convolutions(self.network) else wide)

    @property
    def full_size(self) -> int:
        """Samples at once in the whole pass."""
        return self.fixed_batch or self.chunk

    def batches(self, x: Tensor, y: Tensor, size: int = 0) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """(start, rows that count, x, y). A network with a fixed batch is fed its last chunk filled up with repeats."""
        size = size or self.full_size
        for rows in blocks(len(x), 1, size):
            count = rows.stop - rows.start
            filling = (self.fixed_batch or count) - count
            xs, ys = (_filled(part[rows], filling) for part in (x, y))
            yield rows.start, count, self._ready(xs), ys.to(self._device)

    def _ready(self, x: Tensor) -> Tensor:
        """A copy in the network's own type: a network may change what it is given."""
        weight = next(self.network.parameters())
        return x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype, copy=True)

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def run(self, x: Tensor, needs_input: bool = False, closed: ClosedForms | None = None) -> Passed:
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
        return Passed(f, calls, dict(entries), leaf, others)

    def _has_entry(self, layer: DenseLayer) -> bool:
        """Whether J W is taken from the backward passes, which form it on their way, in the network's arithmetic."""
        ours = layer.patches is None and not layer.squeezes
        return ours and self.to_input and layer.weight(self.network).dtype == torch.float64

    def _input_jacobian_needs_backward(self, x: Tensor) -> bool:
        """Not where a dense layer alone is fed by the input: there ∂f/∂input = J W. Never for integer inputs."""
        return self._wants_input(x) and self._entrance is None

    def _wants_input(self, x: Tensor) -> bool:
        return self.to_input and x.is_floating_point()

    def _enters_unchanged(self, x: Tensor, calls: Calls) -> bool:
        """Whether the first layer is given these very inputs: the few samples it was found with may not tell."""
        assert self._entrance is not None
        given = calls[self._entrance.name][0][0]
        return torch.equal(given.flatten(), x.flatten().to(given.dtype))

    def _record(
        self,
        start: int,
        rows: int,
        y: Tensor,
        passed: Passed,
        found: Jacobians | None,
        others: ChunkGradients | None,
    ) -> Record:
        f, y = passed.f.detach().double()[:rows], y[:rows]
        gradient = self.loss.gradient(f, y)
        if found is None:
            layers = {layer.name: self._forward_record(layer, rows, passed) for layer in self.layers}
        else:
            layers = {
                layer.name: self._full_record(layer, gradient, passed, found, residuals)
                for group in self._groups
                for residuals in [self._residuals(group, passed, gradient)]
                for layer in group
            }
        return Record(
            start=start,
            f=f,
            y=y,
            loss=self.loss.value(f, y),
            gradient=gradient,
            layers=layers,
            entrance=None if found is None else self._entrance_of(layers, found),
            loss_function=self.loss,
            by_input=None if found is None else found.by_input,
            others=others,
        )

    def _forward_record(self, layer: DenseLayer, rows: int, passed: Passed) -> LayerRecord:
        x, z = self._met(layer, rows, passed)
        nothing = z.new_empty(rows, 0, *z.shape[1:])
        W, gradient = layer.weight(self.network), nothing.new_empty(rows, 0)
        return LayerRecord(layer, W, x, z, nothing, gradient, None, "exact", None)

    def _full_record(
        self, layer: DenseLayer, gradient: Tensor, passed: Passed, found: Jacobians, residuals: Residuals
    ) -> LayerRecord:
        (n, rows), name = (len(passed.f), len(gradient)), layer.name
        x, z = self._met(layer, rows, passed)
        J = _joined([by_sample(layer, J, n, layer.out_features) for J in found.by_layer[name]], 2)[:rows]
        W, R = layer.weight(self.network), residuals.by_layer.get(name)
        record = LayerRecord(layer, W, x, z, J, gradient, self._narrow.get(name), residuals.kind, R)
        if name in found.by_entry and len(found.by_entry[name]) == len(passed.calls[name]):
            record.hold(_joined([by_sample(layer, K, n, layer.in_features) for K in found.by_entry[name]], 2)[:rows])
        return record

    def _met(self, layer: DenseLayer, rows: int, passed: Passed) -> tuple[Tensor, Tensor]:
        """What the layer was given, [rows, T, in], and answered, [rows, T, out], over all its calls."""
        n, calls = len(passed.f), passed.calls[layer.name]
        x = _joined([layer.arrange_input(x, n) for x, _ in calls], 1)[:rows]
        return x, _joined([layer.arrange(z.detach(), n) for _, z in calls], 1)[:rows]

    def _entrance_of(self, layers: _LayerRecords, found: Jacobians) -> LayerRecord | None:
        """The layer whose J W is ∂f/∂input, where no backward pass went down to the input."""
        if found.by_input is not None or self._entrance is None or not self.to_input:
            return None
        return layers[self._entrance.name]

    def _residuals(self, group: list[DenseLayer], passed: Passed, gradient: Tensor) -> Residuals:
        return NO_RESIDUALS if self._straight else find_residuals(group, passed.f, gradient, passed.calls)

    @cached_property
    def _others(self) -> Others:
        return Others(self.network, other_parameters(self.network, self.layers), self.fixed_batch)

    @cached_property
    def _straight(self) -> bool:
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
        wide = [layer for layer in self.layers if layer.squeezes and layer.patches is None and self.to_input]
        return {layer.name: narrow_factor(layer.weight(self.network).double()) for layer in wide}


_LayerRecords = dict[str, LayerRecord]


def _filled(part: Tensor, more: int) -> Tensor:
    """`part` with its first sample repeated at the end."""
    return torch.cat([part, part[:1].expand(more, *part.shape[1:])]) if more else part


def _joined(parts: list[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
