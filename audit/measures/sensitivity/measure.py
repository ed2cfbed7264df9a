"""How strongly, and in how many directions, do the scores answer to small changes of the input and of the weights?

Source  "A simple connection from loss flatness to compressed representations in neural networks" (2024): MLS, volume
        and dimensionality of the local map ∂f/∂x, sharpness S(θ), and the inequalities that tie them together.
Way     everything about a dense layer follows from its input x and J = ∂f/∂z: ∂f/∂x = J W, ‖∇_W f‖_F² = ‖J‖_F² ‖x‖².
        Other parameters: per-sample gradients (network/parameter_gradients). Each number is kept sample by sample, so
        that every mean gets a bootstrap interval and every inequality is evaluated once, at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.blocks import blocks, in_blocks
from audit.maths.decompositions import LocalMap, largest_singular_value, smallest_singular_value, spectral_norm
from audit.measures.contract import Audit, Measure, Measurement
from audit.measures.sensitivity.card import CARDS
from audit.measures.sensitivity.columns import (
    Columns,
    InputColumns,
    LayerColumns,
    MapColumns,
    SampleColumns,
    SkipColumns,
    column,
    input_columns,
    invariant_at,
    joined,
    layer_map,
)
from audit.measures.sensitivity.sharpness import DenseSquares, TraceFold, dense_squares, sampled_adaptive_sharpness
from audit.measures.sensitivity.summary import summarise
from audit.model.batches import as_fed
from audit.model.packing import continuous_only
from audit.network.hooks import hooked
from audit.network.layers import DenseLayer, dense_only
from audit.network.parameter_gradients import closed_parameters, other_parameters
from audit.network.record import LayerProducts, LayerRecord, Products, Record


class Sensitivity:
    """The measure."""

    key = "sensitivity"
    question = "How strongly, and in how many directions, do the scores answer to small changes of the input?"
    cards = CARDS

    def start(self, audit: Audit) -> SensitivityFold:
        """Begins an audit."""
        return SensitivityFold(audit)


MEASURE: Measure = Sensitivity()


class SensitivityFold:
    """The measure at work: per-sample columns, filled chunk by chunk."""

    def __init__(self, audit: Audit) -> None:
        self._audit, network = audit, audit.network
        self._closed = {layer.name: closed_parameters(network, layer) for layer in audit.layers}
        self._beyond_dense = other_parameters(network, dense_only(audit.layers))
        self._first = first_layer(dense_only(audit.layers))
        self._samples: list[SampleColumns] = []
        self._input: list[InputColumns] = []
        self._maps: dict[str, list[MapColumns]] = {layer.name: [] for layer in audit.layers}
        self._active: dict[str, Tensor] = {}
        self._skips, self._trace = SkipFold(audit), TraceFold(audit, self._beyond_dense)

    def see(self, record: Record, products: Products) -> None:
        """Takes in one chunk of the train split."""
        audit = self._audit
        x = as_fed(audit.network, audit.train.x[record.start : record.start + len(record.f)])
        assert record.others is not None
        (theta, adaptive), entrance_map = record.others.squares(), None
        for name, layer in products.layers.items():
            squares = self._squares(layer)
            weight, bias = (float(alone) for alone in self._closed[name])
            theta = theta + weight * squares.weight + bias * squares.bias
            adaptive = adaptive + weight * squares.adaptive_weight + bias * squares.adaptive_bias
            mapped = layer_map(layer, audit.epsilon)
            self._keep(layer.layer, mapped, squares)
            if name == record.entrance == self._first.name:
                entrance_map = mapped
        invariant = invariant_at(products.layers[self._first.name])
        self._samples.append(SampleColumns(column(theta), column(adaptive), column(invariant)))
        sizes = continuous_only(audit.model.input, x.flatten(1).double())
        entering = input_columns(products, sizes, entrance_map, invariant, audit.epsilon)
        if entering is not None:
            self._input.append(entering)
        self._skips.see(record, x)
        self._trace.see(record)

    def finish(self) -> Measurement:
        """Answers, after the last chunk."""
        audit, trace = self._audit, self._trace.parts()
        layers = {layer.name: self._layer(layer) for layer in audit.layers}
        columns = Columns(
            samples=joined(self._samples),
            input=joined(self._input) if self._input else None,
            layers=tuple(layers.values()),
            first=layers[self._first.name],
            trace=np.concatenate(trace) if trace else None,
            trace_skipped=self._trace.skipped,
            outputs=audit.train_outcome.scores.shape[1],
            epsilon=audit.epsilon,
            parameters=sum(value.numel() for value in audit.network.parameters()),
            others=sum(audit.network.get_parameter(name).numel() for name in self._beyond_dense),
            sampled=self._sampled() if audit.settings.adaptive_draws else None,
        )
        return summarise(columns, audit.bootstrap)

    def _layer(self, layer: DenseLayer) -> LayerColumns:
        return LayerColumns(
            **vars(joined(self._maps[layer.name])),
            layer=layer,
            spectral_norm=spectral_norm(self._audit.weight(layer)),
            alone=self._closed[layer.name][0],
            active=self._active[layer.name].tolist(),
            skip=self._skips.of(layer.name),
        )

    def _squares(self, products: LayerProducts) -> DenseSquares:
        layer = products.layer.layer
        bias = self._audit.network.get_submodule(layer.module).bias
        assert bias is None or isinstance(bias, Tensor)
        return dense_squares(products, self._audit.weight(layer), bias)

    def _keep(self, record: LayerRecord, local: LocalMap, squares: DenseSquares) -> None:
        """A layer's columns, and on how many samples each of its outputs moves a score."""
        name, x_norm = record.layer.name, smallest_singular_value(record.x)
        parts = (local.largest, local.frobenius, local.log_volume, squares.weight, x_norm)
        self._maps[name].append(MapColumns(*map(column, parts)))
        moving = in_blocks(lambda J: (J != 0).any(2).any(1), record.J).sum(0)  # [n, C, T, out] → [out]
        self._active[name] = self._active.get(name, 0) + moving

    def _sampled(self) -> tuple[float, float]:
        audit = self._audit
        size = audit.capture.forward_size
        whole = len(audit.train.x) // size * size or len(audit.train.x)  # a fixed batch leaves an incomplete rest out
        x = audit.train.x if audit.capture.fixed_batch is None else audit.train.x[:whole]
        chunks = [as_fed(audit.network, x[part]) for part in blocks(len(x), 1, size)]
        return sampled_adaptive_sharpness(audit.network, chunks, audit.settings.adaptive_draws, audit.settings.seed)


def first_layer(layers: tuple[DenseLayer, ...]) -> DenseLayer:
    """The layer that the bounds start from: the one fed by the input, best alone; else the first of all."""
    fed = [layer for layer in layers if layer.fed_by_input]
    return next((layer for layer in fed if layer.cut_point), (fed or list(layers))[0])


# The whole derivative ∂f/∂x at a layer's input: through the layer, and past it where a skip connection leads on.
# What the layer itself carries is J W. The rest of ∂f/∂x is what the skip carries: J in Eq. 16 of the paper.


ROUNDING = 1e5  # in units of the arithmetic's ε: how far J W may be from ∂f/∂x where no other way leads on


def whole_jacobians(network: nn.Module, layers: Sequence[DenseLayer], x: Tensor, rows: int) -> dict[str, Tensor]:
    """∂f/∂x [rows, C, T, in] of each layer by its name; x is a full batch of which the first `rows` count."""
    inputs: dict[str, list[Tensor]] = defaultdict(list)

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, given, _answer: inputs[name].append(given[0])

    def differentiable(_module: nn.Module, given: tuple[Tensor, ...]) -> Tensor | None:
        return None if given[0].requires_grad else given[0].detach().requires_grad_()  # a constant, such as a mask

    # every activation gets a derivative: those before the first layer follow from parameters, or from the input itself
    values = {name: parameter.detach().requires_grad_() for name, parameter in network.named_parameters()}
    x = x.clone().requires_grad_() if x.is_floating_point() else x
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        before = {layer.module: differentiable for layer in layers}
        with hooked(network, {layer.module: keep(layer.name) for layer in layers}, before):
            f: Tensor = functional_call(network, values, (x,)).reshape(len(x), -1)
        targets = [given for layer in layers for given in inputs[layer.name]]
        rows_of_f = [torch.autograd.grad(f_c, targets, retain_graph=True, materialize_grads=True) for f_c in f.sum(0)]
    columns = iter([torch.stack(column) for column in zip(*rows_of_f, strict=True)])
    found = {}
    for layer in layers:
        pieces = [next(columns) for _ in inputs[layer.name]]
        by_call = [torch.stack([layer.arrange(part, len(x)) for part in piece], 1) for piece in pieces]
        found[layer.name] = torch.cat(by_call, 2)[:rows]
    return found


class SkipFold:
    """The two norms of Eq. 17 for every layer whose input is also used elsewhere; which, the first chunk shows."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._bypassed = [layer for layer in audit.layers if not layer.cut_point and layer.patches is None]
        self._parts: dict[str, list[SkipColumns]] = defaultdict(list)

    def see(self, record: Record, x: Tensor) -> None:
        """Takes in one chunk; x its inputs."""
        if not self._bypassed:
            return
        n, batch = len(x), self._audit.capture.fixed_batch
        filled = x if batch is None else x[torch.arange(batch, device=x.device) % n]
        leading_on = []
        for name, whole in whole_jacobians(self._audit.network, self._bypassed, filled, n).items():
            layer = record.layers[name]
            past = (whole - layer.J @ self._audit.weight(layer.layer).to(layer.J.dtype)).flatten(2)
            if record.start == 0 and past.abs().max() <= ROUNDING * self._audit.epsilon * whole.abs().max():
                continue
            leading_on.append(layer.layer)
            norms = (largest_singular_value(part) for part in (whole.flatten(2), past))
            self._parts[name].append(SkipColumns(*map(column, norms)))
        self._bypassed = leading_on

    def of(self, name: str) -> SkipColumns | None:
        """A layer's columns; None where nothing leads past it."""
        return joined(self._parts[name]) if name in self._parts else None
