"""How strongly, and in how many directions, do the scores answer to small changes of the input and of the weights?

Source  "A simple connection from loss flatness to compressed representations in neural networks" (2024): MLS, volume
        and dimensionality of the local map ∂f/∂x, sharpness S(θ), and the inequalities that tie them together.
Way     everything about a dense layer follows from its input x and J = ∂f/∂z: ∂f/∂x = J W, ‖∇_W f‖_F² = ‖J‖_F² ‖x‖².
        Other parameters: per-sample gradients (parameters.py). Each number is kept sample by sample, so that every mean
        gets a bootstrap interval and every inequality is evaluated once, at the end.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

import torch
from torch import Tensor

from audit.cards.sensitivity import CARDS
from audit.gradients.parameters import SampleGradients, closed_parameters, other_parameters
from audit.layers import DenseLayer, dense_only
from audit.measure import Audit, Measurement
from audit.record import LayerRecord, Record
from audit.sensitivity.sharpness import dense_squares, residual_trace, sampled_adaptive_sharpness, straight_in
from audit.sensitivity.singular import (
    LocalMap,
    centring,
    largest_singular_value,
    local_map,
    narrow_factor,
    smallest_singular_value,
    spectral_norm,
)
from audit.sensitivity.skips import whole_jacobians
from audit.sensitivity.summary import Columns, summarise

ROUNDING = 1e5  # in units of the arithmetic's ε: how far J W may be from ∂f/∂x where no other way leads on
CACHED = 1 << 17  # numbers (1 MB) in a block
TRACE_COLUMNS = 1024  # second derivatives per sample, above which the exact trace is left out


class Sensitivity:
    """The measure."""

    key = "sensitivity"
    question = "How strongly, and in how many directions, do the scores answer to small changes of the input?"
    cards = CARDS

    def start(self, audit: Audit) -> SensitivityFold:
        """Begins an audit."""
        return SensitivityFold(audit)


class SensitivityFold:
    """The measure at work: per-sample columns, filled chunk by chunk."""

    def __init__(self, audit: Audit) -> None:
        self._audit, network = audit, audit.network
        self._factors = {layer.name: narrow_factor(audit.weight(layer)) for layer in audit.layers}
        self._closed = {layer.name: closed_parameters(network, layer) for layer in audit.layers}
        self._others = SampleGradients(
            network, other_parameters(network, audit.layers), audit.train.x, audit.capture.fixed_batch
        )
        self._beyond_dense = other_parameters(network, dense_only(audit.layers))
        self._first = first_layer(dense_only(audit.layers))
        self._bypassed = [layer for layer in audit.layers if not layer.cut_point and layer.patches is None]
        self._columns: dict[str, list[Tensor]] = defaultdict(list)
        self._active: dict[str, Tensor] = {}
        self._trace_skipped = self._why_no_trace()

    def see(self, record: Record) -> None:
        """Takes in one chunk of the train split."""
        x = self._inputs(record)
        theta, adaptive = self._others.squares(x)
        for name, layer in record.layers.items():
            theta_part, adaptive_part = self._see_gradients(layer)
            theta, adaptive = theta + theta_part, adaptive + adaptive_part
            if name != self._first.name:
                self._see_map(layer)
        self._add(theta=theta, adaptive=adaptive)
        self._see_input(record, x.flatten(1).double(), self._see_map(record.layers[self._first.name]))
        self._see_skips(record, x)
        self._see_trace(record)

    def finish(self) -> Measurement:
        """Answers, after the last chunk."""
        audit = self._audit
        if self._trace_skipped is not None:
            self._columns.pop("trace", None)  # it may have been given up half-way
        columns = {name: torch.cat(parts).cpu().numpy() for name, parts in self._columns.items()}
        norms = {layer.name: spectral_norm(audit.weight(layer)) for layer in audit.layers}
        sampled = self._sampled() if audit.settings.adaptive_draws else None
        table = Columns(
            values=columns,
            layers=audit.layers,
            spectral_norms=norms,
            active={name: counts.tolist() for name, counts in self._active.items()},
            alone={name: weight for name, (weight, _) in self._closed.items()},
            first=self._first,
            outputs=audit.train_outcome.scores.shape[1],
            epsilon=self._epsilon(),
            parameters=sum(value.numel() for value in audit.network.parameters()),
            others=sum(audit.network.get_parameter(name).numel() for name in self._beyond_dense),
            trace_skipped=self._trace_skipped,
            sampled=sampled,
        )
        return summarise(table, audit.settings.bootstrap, audit.settings.seed)

    def _add(self, **columns: Tensor) -> None:
        for name, values in columns.items():
            self._columns[name].append(values)

    def _see_map(self, record: LayerRecord) -> tuple[Tensor, LocalMap]:
        """Fills the columns of the map from a layer's input to the scores; K [n, C, T·r] and the map."""
        layer = record.layer
        if layer.patches is None:
            K = (record.J.double() @ self._factors[layer.name]).flatten(2)
            local = local_map(K, layer.tokens * layer.in_features, self._epsilon())
        else:
            K = self._through_convolution(record)
            local = local_map(K, K.shape[2], self._epsilon())
        columns = {"largest": local.largest, "frobenius": local.frobenius, "log_volume": local.log_volume}
        self._add(**{f"{layer.name}/{key}": values for key, values in columns.items()})
        return K, local

    def _through_convolution(self, record: LayerRecord) -> Tensor:
        """∂f/∂x [n, C, size of x] at a convolution's own input: patches overlap, so J W alone counts pixels apart."""
        assert record.layer.patches is not None
        positions = prod(record.layer.patches.positions)
        g = record.J.double().reshape(-1, positions, record.layer.out_features)
        pulled = record.layer.patches.pull(self._audit.weight(record.layer), g)
        return pulled.reshape(*record.J.shape[:2], -1)

    def _see_gradients(self, record: LayerRecord) -> tuple[Tensor, Tensor]:
        """Fills a layer's gradient columns; its share of ‖∇_θ f‖² and of the adaptive sharpness [n]."""
        name, W = record.layer.name, self._audit.weight(record.layer)
        bias = self._audit.network.get_submodule(record.layer.module).bias
        assert bias is None or isinstance(bias, Tensor)
        squares = dense_squares(record, W, bias)
        self._add(**{f"{name}/gradient": squares.weight, f"{name}/reach": smallest_singular_value(record.x)})
        moving = (record.J != 0).any(2).any(1).sum(0)  # [n, C, T, out] → [out]
        self._active[name] = self._active.get(name, 0) + moving
        weight, own_bias = (float(alone) for alone in self._closed[name])
        theta = weight * squares.weight + own_bias * squares.bias
        return theta, weight * squares.adaptive_weight + own_bias * squares.adaptive_bias

    def _see_input(self, record: Record, x: Tensor, first_map: tuple[Tensor, LocalMap]) -> None:
        """The local map of the model's input, and Eq. 43 at the input and at the first layer."""
        first = record.layers[self._first.name]
        K, local = first_map
        first_x = first.x.flatten(1)
        if K.shape[2] == first_x.shape[1]:  # J W itself, not narrowed
            first_invariant = _invariant(K, first_x.double())
        else:
            first_invariant = _invariant_through(first, self._audit.weight(first.layer))
        self._add(first_invariant=first_invariant)
        if record.input_jacobian is None:
            return
        if first.layer.fed_by_input and first.layer.cut_point:
            invariant = first_invariant
        else:
            K = record.input_jacobian().double()
            local, invariant = local_map(K, x.shape[1], self._epsilon()), _invariant(K, x)
        self._add(
            largest=local.largest,
            log_volume=local.log_volume,
            rank=local.rank,
            dimension=local.dimension,
            normalized=x.square().sum(1) * local.largest.square(),
            invariant=invariant,
        )
        if K.shape[1] > 1:
            centred = local_map(centring(K.shape[1]).to(K.device) @ K, x.shape[1], self._epsilon())
            self._add(log_volume_centred=centred.log_volume)

    def _see_skips(self, record: Record, x: Tensor) -> None:
        """The two norms of Eq. 17 for every layer whose input is also used elsewhere; which, the first chunk shows."""
        if not self._bypassed:
            return
        n, batch = len(x), self._audit.capture.fixed_batch
        filled = x if batch is None else x[torch.arange(batch, device=x.device) % n]
        leading_on = []
        for name, whole in whole_jacobians(self._audit.network, self._bypassed, filled, n).items():
            layer = record.layers[name]
            past = (whole - layer.J @ self._audit.weight(layer.layer).to(layer.J.dtype)).flatten(2)
            if record.start == 0 and past.abs().max() <= ROUNDING * self._epsilon() * whole.abs().max():
                continue
            leading_on.append(layer.layer)
            self._columns[f"{name}/whole"].append(largest_singular_value(whole.flatten(2)))
            self._columns[f"{name}/past"].append(largest_singular_value(past))
        self._bypassed = leading_on

    def _see_trace(self, record: Record) -> None:
        """The part of Tr H beyond S(θ), where the network behind a layer is curved."""
        dense = [record.layers[layer.name] for layer in dense_only(self._audit.layers)]
        curved = [layer for layer in dense if layer.residual_times is not None]
        if self._trace_skipped is None:
            self._trace_skipped = self._why_no_curved_trace(record, curved)
        if self._trace_skipped is None:
            extra = torch.zeros(len(record.f), dtype=torch.float64, device=record.f.device)
            for layer in curved:
                extra = extra + residual_trace(layer, layer.layer.bias)
            self._add(trace=extra)

    def _why_no_curved_trace(self, record: Record, curved: list[LayerRecord]) -> str | None:
        if any(record.layers[layer.name].curvature != "exact" for layer in dense_only(self._audit.layers)):
            return "the network cannot be differentiated twice"
        if curved and self._audit.loss.name != "mse":
            return "the network is curved in its weights and ½‖f − y‖² is not its loss, so the trace has no targets"
        if any(layer.layer.tokens * layer.layer.out_features > TRACE_COLUMNS for layer in curved):
            return f"a curved layer has more than {TRACE_COLUMNS} outputs: the exact trace would cost that many passes"
        return None

    def _why_no_trace(self) -> str | None:
        """Weights used twice enter squared; a curved way on from other parameters has no cheap exact trace."""
        audit = self._audit
        if any(layer.calls > 1 for layer in dense_only(audit.layers)):
            return "a layer is used more than once, so the scores are not linear in its weights"
        batch = audit.capture.fixed_batch
        x = self._ready(audit.train.x[torch.arange(batch or 4) % len(audit.train.x)])
        try:
            bent = next((name for name in self._beyond_dense if not straight_in(audit.network, name, x)), None)
        except RuntimeError:
            return "the network cannot be differentiated twice"
        return None if bent is None else f"the scores are curved in {bent}, which no dense layer holds"

    def _sampled(self) -> tuple[float, float]:
        audit = self._audit
        size = audit.capture.fixed_batch or audit.capture.chunk
        whole = len(audit.train.x) // size * size or len(audit.train.x)  # a fixed batch leaves an incomplete rest out
        x = audit.train.x if audit.capture.fixed_batch is None else audit.train.x[:whole]
        chunks = [self._ready(part) for part in torch.split(x, size)]
        return sampled_adaptive_sharpness(audit.network, chunks, audit.settings.adaptive_draws, audit.settings.seed)

    def _inputs(self, record: Record) -> Tensor:
        return self._ready(self._audit.train.x[record.start : record.start + len(record.f)])

    def _ready(self, x: Tensor) -> Tensor:
        weight = next(self._audit.network.parameters())
        return x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype)

    def _epsilon(self) -> float:
        return torch.finfo(next(self._audit.network.parameters()).dtype).eps


def first_layer(layers: tuple[DenseLayer, ...]) -> DenseLayer:
    """The layer that the bounds start from: the one fed by the input, best alone; else the first of all."""
    fed = [layer for layer in layers if layer.fed_by_input]
    return next((layer for layer in fed if layer.cut_point), (fed or list(layers))[0])


def _invariant_through(layer: LayerRecord, W: Tensor) -> Tensor:
    """Σ_p x_p² ‖(J W)_p‖² [n] at a layer's own input, in blocks that stay in the processor's cache."""
    rows = max(1, CACHED // (layer.J.shape[1] * layer.x[0].numel()))
    pairs = zip(torch.split(layer.J, rows), torch.split(layer.x, rows), strict=True)
    return torch.cat([_invariant(J.double() @ W, x.double()) for J, x in pairs])


def _invariant(K: Tensor, x: Tensor) -> Tensor:
    """Σ_p x_p² ‖∂f/∂x_p‖² [n] of K [n, C, …] and x [n, …]."""
    norms: Tensor = torch.linalg.vector_norm((K * x[:, None]).flatten(1), dim=1)
    return norms.square()
