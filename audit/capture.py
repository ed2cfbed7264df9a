"""The one pass: forward once, backward once per score, for all dense layers at once.

z = W x + b is linear in W, so x and J = ∂f/∂z hold everything that a measure can ask about W; no gradient with respect
to a weight is ever formed. Samples of a batch do not mix (checked before), so the backward pass of Σ_i f_ic gives
∂f_ic/∂z_i of every sample i at once.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.curvature.residual import NO_RESIDUALS, Residuals, find_residuals
from audit.curvature.residual import Calls as _Calls
from audit.curvature.straight import is_piecewise_linear
from audit.layers import DenseLayer
from audit.loss import Loss
from audit.record import LayerRecord, Record
from audit.sensitivity.singular import narrow_factor
from audit.watch import has_convolutions, hooked, scores


@dataclass(frozen=True)
class Capture:
    """How to run a network over samples: built once, then called on each split."""

    network: nn.Module
    layers: Sequence[DenseLayer]
    loss: Loss
    chunk: int  # samples at once
    fixed_batch: int | None = None  # a batch size the network insists on
    side_by_side: bool = True  # whether the backward passes of all scores may run at once: quicker, but takes memory
    to_input: bool = True  # whether ∂f/∂input is wanted; if not, the backward passes stop at the first layer

    def forward(self, x: Tensor, y: Tensor) -> Iterator[Record]:
        """Scores, losses and layer inputs, without any backward pass."""
        for start, rows, xs, ys in self.batches(x, y):
            with torch.no_grad():
                f, xs_zs, _ = self._run(xs)
                record = self._record(start, rows, f, ys, xs_zs, jacobians=None)
            yield record

    def full(self, x: Tensor, y: Tensor) -> Iterator[Record]:
        """The whole record. Its curvature products need the autograd graph, which lives until the next record."""
        for start, rows, xs, ys in self.batches(x, y):
            with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
                f, xs_zs, leaf = self._run(xs, needs_input=self._input_jacobian_needs_backward(xs))
                if leaf is None and self._wants_input(xs) and not self._enters_unchanged(xs, xs_zs):
                    f, xs_zs, leaf = self._run(xs, needs_input=True)
                record = self._record(start, rows, f, ys, xs_zs, self._jacobians(f, xs_zs, leaf))
            yield record

    def batches(self, x: Tensor, y: Tensor) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """(start, rows that count, x, y). A network with a fixed batch is fed its last chunk filled up with repeats."""
        size = self.fixed_batch or self.chunk
        for start in range(0, len(x), size):
            rows = min(size, len(x) - start)
            filling = (self.fixed_batch or rows) - rows
            xs, ys = (_filled(part[start : start + rows], filling) for part in (x, y))
            yield start, rows, self._ready(xs), ys.to(self._device)

    def _ready(self, x: Tensor) -> Tensor:
        """A copy in the network's own type: a network may change what it is given."""
        weight = next(self.network.parameters())
        return x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype, copy=True)

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def _run(self, x: Tensor, needs_input: bool = False) -> tuple[Tensor, _Calls, Tensor | None]:
        """f, the (x, z) of each call of each layer, and the input as a leaf where its gradient is wanted."""
        calls: _Calls = defaultdict(list)
        leaf = x.clone().requires_grad_() if needs_input else None

        def keep(name: str) -> Callable[..., Tensor]:
            def hook(_module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
                if torch.is_grad_enabled() and not z.requires_grad:
                    z = z.detach().requires_grad_()
                calls[name].append((inputs[0].detach(), z))
                return z.clone() if self._inplace else z  # what follows must not overwrite z

            return hook

        with hooked(self.network, {layer.module: keep(layer.name) for layer in self.layers}):
            return scores(self.network, x if leaf is None else leaf), calls, leaf

    @cached_property
    def _inplace(self) -> bool:
        return any(getattr(module, "inplace", False) for module in self.network.modules())

    def _input_jacobian_needs_backward(self, x: Tensor) -> bool:
        """Not where a dense layer alone is fed by the input: there ∂f/∂input = J W. Never for integer inputs."""
        return self._wants_input(x) and self._entrance is None

    def _wants_input(self, x: Tensor) -> bool:
        return self.to_input and x.is_floating_point()

    def _enters_unchanged(self, x: Tensor, calls: _Calls) -> bool:
        """Whether the first layer is given these very inputs: the few samples it was found with may not tell."""
        assert self._entrance is not None
        given = calls[self._entrance.name][0][0]
        return torch.equal(given.flatten(), x.flatten().to(given.dtype))

    def _jacobians(self, f: Tensor, calls: _Calls, leaf: Tensor | None) -> _Jacobians:
        """∂f/∂z of every call [n, C, ...raw shape], and ∂f/∂input or None."""
        targets = [z for layer in self.layers for _, z in calls[layer.name]] + ([] if leaf is None else [leaf])
        columns = self._backward_all(f, targets)
        pieces = iter(columns)
        by_layer = {layer.name: [next(pieces) for _ in calls[layer.name]] for layer in self.layers}
        return _Jacobians(by_layer, next(pieces, None))

    def _backward_all(self, f: Tensor, targets: list[Tensor]) -> list[Tensor]:
        """∂f/∂target as [C, *shape] for each target.

        Side by side where that is quicker and possible; convolutions run faster, and a few operators run only, one
        score after the other.
        """
        if self.side_by_side and not self._convolves:
            units = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)[:, None, :].expand(-1, *f.shape)
            with suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an operator without a batching rule is slow here, not wrong
                return list(torch.autograd.grad(f, targets, units, retain_graph=True, is_grads_batched=True))
        sums = f.sum(0)  # samples do not mix
        rows = [torch.autograd.grad(total, targets, retain_graph=True, materialize_grads=True) for total in sums]
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    def _record(
        self, start: int, rows: int, f_raw: Tensor, y: Tensor, calls: _Calls, jacobians: _Jacobians | None
    ) -> Record:
        f, y = f_raw.detach().double()[:rows], y[:rows]
        gradient = self.loss.gradient(f, y)
        if jacobians is None:
            layers = {layer.name: _forward_record(layer, rows, len(f_raw), calls[layer.name]) for layer in self.layers}
        else:
            layers = {
                layer.name: _full_record(layer, f_raw, gradient, calls[layer.name], jacobians, residuals)
                for group in self._groups
                for residuals in [self._residuals(group, f_raw, gradient, calls)]
                for layer in group
            }
        return Record(
            start=start,
            f=f,
            y=y,
            loss=self.loss.value(f, y),
            gradient=gradient,
            layers=layers,
            input_jacobian=None if jacobians is None else self._input_jacobian(rows, layers, jacobians),
            input_factor=None if jacobians is None else self._input_factor(rows, layers, jacobians),
            loss_function=self.loss,
        )

    def _input_jacobian(self, rows: int, layers: _LayerRecords, jacobians: _Jacobians) -> Callable[[], Tensor] | None:
        if jacobians.by_input is not None:
            raw = jacobians.by_input.transpose(0, 1)[:rows]
            return lambda: raw.flatten(2)
        if self._entrance is None or not self.to_input:
            return None
        J, W = layers[self._entrance.name].J, self._entrance.weight(self.network)
        return lambda: (J @ W).flatten(2)  # [n, C, T, out] [out, in] → [n, C, T·in]

    def _input_factor(self, rows: int, layers: _LayerRecords, jacobians: _Jacobians) -> Callable[[], Tensor] | None:
        """J Rᵀ with Wᵀ = Q R in place of J W: Q has orthonormal columns, so no singular value changes."""
        if jacobians.by_input is None and self._entrance is not None and self.to_input:
            J, narrow = layers[self._entrance.name].J, self._narrow
            return lambda: (J.double() @ narrow).flatten(2)
        full = self._input_jacobian(rows, layers, jacobians)
        return None if full is None else lambda: full().double()

    def _residuals(self, group: list[DenseLayer], f: Tensor, gradient: Tensor, calls: _Calls) -> Residuals:
        return NO_RESIDUALS if self._straight else find_residuals(group, f, gradient, calls)

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
        """The dense layer that everything enters through, if there is one; J W of a convolution is not ∂f/∂input."""
        entrances = (layer for layer in self.layers if layer.fed_by_input and layer.cut_point)
        return next((layer for layer in entrances if layer.patches is None), None)

    @cached_property
    def _narrow(self) -> Tensor:
        assert self._entrance is not None
        return narrow_factor(self._entrance.weight(self.network).double())


_LayerRecords = dict[str, LayerRecord]


@dataclass(frozen=True)
class _Jacobians:
    by_layer: dict[str, list[Tensor]]  # per call [C, *raw shape of z]
    by_input: Tensor | None  # [C, n, ...]


def _forward_record(layer: DenseLayer, rows: int, n: int, calls: list[tuple[Tensor, Tensor]]) -> LayerRecord:
    x = _joined([layer.arrange_input(x, n) for x, _ in calls], 1)[:rows]
    z = _joined([layer.arrange(z, n) for _, z in calls], 1)[:rows]
    nothing = z.new_empty(rows, 0, *z.shape[1:])
    return LayerRecord(layer, x, z, nothing, nothing.new_empty(rows, 0), "exact", None)


def _full_record(
    layer: DenseLayer,
    f_raw: Tensor,
    gradient: Tensor,
    calls: list[tuple[Tensor, Tensor]],
    jacobians: _Jacobians,
    residuals: Residuals,
) -> LayerRecord:
    n, rows = len(f_raw), len(gradient)
    x = _joined([layer.arrange_input(x, n) for x, _ in calls], 1)[:rows]
    z = _joined([layer.arrange(z.detach(), n) for _, z in calls], 1)[:rows]
    J = _joined([_arranged(layer, J, n) for J in jacobians.by_layer[layer.name]], 2)[:rows]  # [n, C, T, out]
    return LayerRecord(layer, x, z, J, gradient, residuals.kind, residuals.by_layer.get(layer.name))


def _arranged(layer: DenseLayer, J: Tensor, n: int) -> Tensor:
    """∂f/∂z of one call, [C, *raw shape of z] → [n, C, T, out]."""
    if layer.batch_axis == 0 and layer.feature_axis == -1:
        return J.reshape(len(J), n, -1, layer.out_features).transpose(0, 1).contiguous()
    return torch.stack([layer.arrange(row, n) for row in J], 1)


def _filled(part: Tensor, more: int) -> Tensor:
    """`part` with its first sample repeated at the end."""
    return torch.cat([part, part[:1].expand(more, *part.shape[1:])]) if more else part


def _joined(parts: list[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
