"""How strongly, and in how many directions, do the scores answer to small changes of the input and of the weights?

Source  "A simple connection from loss flatness to compressed representations in neural networks" (2024): MLS, volume
        and dimensionality of the local map ∂f/∂x, sharpness S(θ), and the inequalities that tie them together.
Way     everything about a dense layer follows from its input x and J = ∂f/∂z: ∂f/∂x = J W, ‖∇_W f‖_F² = ‖J‖_F² ‖x‖².
        Other parameters: per-sample gradients (network/parameter_gradients). Each number is kept sample by sample, so
        that every mean gets a bootstrap interval and every inequality is evaluated once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from audit.curvature.sampled import SampledCurvature, SampleSizes
from audit.maths.blocks import blocks
from audit.measures.contract import Audit, Fold, Measure, Measurement
from audit.measures.sensitivity import DEMAND
from audit.measures.sensitivity.card import CARDS
from audit.measures.sensitivity.columns import (
    Columns,
    InputColumns,
    LayerColumns,
    Picked,
    SampleColumns,
    Signs,
    column,
    joined,
)
from audit.measures.sensitivity.many_scores import NormFold
from audit.measures.sensitivity.maps import MapFold
from audit.measures.sensitivity.sharpness import (
    DenseSquares,
    TraceFold,
    dense_squares,
    sampled_adaptive_sharpness,
    weight_squares,
)
from audit.measures.sensitivity.summary import summarise
from audit.measures.workload import Demand
from audit.model.base import as_fed, filled
from audit.network import DenseLayer, dense_only
from audit.network.capture import Capture
from audit.network.cost import forward_cost
from audit.network.hooks import has_convolutions
from audit.network.parameter_gradients import closed_parameters, other_parameters
from audit.network.record import LayerProducts, Products, Record
from audit.network.residual_traces import is_multilinear


class Sensitivity:
    """The measure."""

    key = "sensitivity"
    question = "How strongly, and in how many directions, do the scores answer to small changes of the input?"
    cards = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> Fold:
        """In the form that the plan has for it."""
        forms: dict[str, Callable[[Audit], Fold]] = {"sampled": SampledFold, "skipped": LeftOut}
        return forms.get(audit.plan.stage(self.key).form, SensitivityFold)(audit)


MEASURE: Measure = Sensitivity()


class LeftOut:
    """The answer where the plan leaves it out: none; the plan says why."""

    def __init__(self, audit: Audit) -> None: ...

    def see(self, record: Record, products: Products) -> None:
        """Nothing to see."""

    def finish(self) -> Measurement:
        """No blocks."""
        return Measurement()


class SensitivityFold:
    """The measure at work: per-sample columns, filled chunk by chunk."""

    def __init__(self, audit: Audit) -> None:
        self._audit, network = audit, audit.network
        self._closed = {layer.name: closed_parameters(network, layer) for layer in audit.layers}
        self._beyond_dense = other_parameters(network, dense_only(audit.layers))
        self._samples: list[SampleColumns] = []
        self._maps, self._trace = MapFold(audit), TraceFold(audit, self._beyond_dense)

    def see(self, record: Record, products: Products) -> None:
        """Takes in one chunk of the train split."""
        assert record.others is not None
        theta, adaptive = record.others.squares()
        squares = {name: self._squares(layer) for name, layer in products.layers.items()}
        for name, of_layer in squares.items():
            weight, bias = (float(alone) for alone in self._closed[name])
            theta = theta + weight * of_layer.weight + bias * of_layer.bias
            adaptive = adaptive + weight * of_layer.adaptive_weight + bias * of_layer.adaptive_bias
        x = self._audit.train.x[record.start : record.start + len(record.f)]
        invariant = self._maps.see(record, products, x, {name: found.weight for name, found in squares.items()})
        self._samples.append(SampleColumns(column(theta), column(adaptive), invariant))
        self._trace.see(record)

    def finish(self) -> Measurement:
        """Answers, after the last chunk."""
        audit, trace = self._audit, self._trace.parts()
        layers = self._maps.layers()
        columns = Columns(
            samples=joined(self._samples),
            input=self._maps.input(),
            layers=tuple(layers.values()),
            first=layers[self._maps.first.name],
            trace=np.concatenate(trace) if trace else None,
            trace_skipped=self._trace.skipped,
            outputs=audit.train_outcome.scores.shape[1],
            epsilon=audit.epsilon,
            parameters=sum(value.numel() for value in audit.network.parameters()),
            others=sum(audit.network.get_parameter(name).numel() for name in self._beyond_dense),
            changed=self._changed() if audit.settings.adaptive_draws else None,
        )
        return summarise(columns, audit.bootstrap)

    def _squares(self, products: LayerProducts) -> DenseSquares:
        layer = products.layer.layer
        bias = self._audit.network.get_submodule(layer.module).bias
        assert bias is None or isinstance(bias, Tensor)
        return dense_squares(products, self._audit.weight(layer), bias)

    def _changed(self) -> tuple[float, float]:
        audit = self._audit
        size = audit.capture.forward_size
        whole = len(audit.train.x) // size * size or len(audit.train.x)  # a fixed batch leaves an incomplete rest out
        x = audit.train.x if audit.capture.fixed_batch is None else audit.train.x[:whole]
        chunks = [as_fed(audit.network, x[part]) for part in blocks(len(x), 1, size)]
        return sampled_adaptive_sharpness(audit.network, chunks, audit.settings.adaptive_draws, audit.settings.seed)


# Sensitivity where all samples are too many: the same numbers on some train samples, picked at random.
#
# Up to `MOST_SCORES` scores, each picked sample has its whole maps, by one backward pass for each score; intervals are
# over those samples. S(θ) and adaptive sharpness run over all parameters and come from random signs, so that no
# gradient of a single sample is formed but those that follow from a dense layer's J and x.


MOST_SCORES = 32  # beyond which a backward pass for each of them is too many
MOST_AT_ONCE = 64  # samples
GRAPH = 3  # times the numbers of a forward pass: what it keeps, and what a backward pass has in hand
CURVED = "the network is curved in its weights, and what that adds to the trace is measured on all samples only"


class SampledFold:
    """The measure at work on samples that it picks itself."""

    def __init__(self, audit: Audit) -> None:
        self._audit, n = audit, len(audit.train)
        wanted = audit.plan.stage("sensitivity").samples or n
        order = torch.randperm(n, generator=torch.Generator().manual_seed(audit.settings.seed))
        rows = order[:wanted].sort().values
        self._x, self._y = audit.train.x[rows], audit.train.y[rows]
        self._scores = audit.train_outcome.scores.shape[1]

    def see(self, record: Record, products: Products) -> None:
        """Nothing: the samples are walked over at the end."""

    def finish(self) -> Measurement:
        """Walks over the picked samples, and answers."""
        audit, beyond = self._audit, other_parameters(self._audit.network, dense_only(self._audit.layers))
        found = self._by_scores() if self._scores <= MOST_SCORES else self._by_steps()
        columns = Columns(
            samples=found.samples,
            input=found.input,
            layers=tuple(found.layers.values()),
            first=found.layers[found.first.name],
            trace=None,
            trace_skipped=None if is_multilinear(audit.network, self._few) else CURVED,
            outputs=self._scores,
            epsilon=audit.epsilon,
            parameters=sum(value.numel() for value in audit.network.parameters()),
            others=sum(audit.network.get_parameter(name).numel() for name in beyond),
            changed=None,
            picked=Picked(len(self._x), len(audit.train), self._signs(), found.norm_error, found.skipped),
        )
        return summarise(columns, audit.bootstrap)

    def _by_scores(self) -> _Found:
        """A backward pass for each score of each sample."""
        capture, maps, samples = self._capture(), MapFold(self._audit, share=False), []
        for record in capture.full(self._x, self._y):
            products = Products(record)
            products.layers = {name: _SingleProducts(record, name) for name in record.layers}
            squares = {name: weight_squares(layer) for name, layer in products.layers.items()}
            x = self._x[record.start : record.start + len(record.f)]
            samples.append(SampleColumns(None, None, maps.see(record, products, x, squares)))
            del record, products  # before the next one is captured
        return _Found(maps.input(), maps.layers(), maps.first, joined(samples))

    def _by_steps(self) -> _Found:
        """Norms by iteration."""
        audit = self._audit
        capture = replace(audit.capture, to_input=False, residuals=False)
        fold = NormFold(audit, capture)
        at_once = self._at_once(2 * GRAPH * self._numbers * self._size)  # a graph of the backward pass, too
        for batch in capture.batches(self._x, self._y, audit.capture.fixed_batch or at_once):
            fold.see(batch)
        many = fold.finish()
        samples = SampleColumns(None, None, many.first_invariant)
        return _Found(many.input, many.layers, many.first, samples, many.norm_error, many.skipped)

    def _signs(self) -> Signs:
        """What the random signs say, from those who drew them for another measure, or else on the picked samples."""
        audit = self._audit
        sizes = SampleSizes(samples=len(self._x), columns=0, token_columns=0, directions=0, room=0)
        given = (audit.capture, audit.train.x, audit.train.y, sizes, audit.settings.seed)
        sums = (audit.sampled or SampledCurvature(*given)).sums
        alone = [layer for layer in audit.layers if closed_parameters(audit.network, layer)[0]]
        layers = {layer.name: sums.squares[f"{layer.module}.weight".lstrip(".")][0] for layer in alone}
        return Signs(sums.all_squares[0], sums.all_squares[1], layers)

    # How many samples at once, so that all that lies in memory for them fits into the room.

    def _capture(self) -> Capture:
        audit, C, size = self._audit, self._scores, self._size
        plain = all(layer.tokens == 1 for layer in audit.layers) and not has_convolutions(audit.network)
        together = plain and audit.capture.side_by_side
        passes = GRAPH * self._numbers * ((1 + C) if together else 1)
        kept = sum(C * layer.tokens * (layer.out_features + layer.in_features) for layer in audit.layers)
        skips = sum(C * layer.tokens * layer.in_features for layer in audit.layers if not layer.cut_point)
        widest = max(layer.tokens * layer.in_features for layer in audit.layers)
        formed = 8 * C * (4 * widest + 3 * self._few[0].numel())  # one layer's map and the input's, in float64
        chunk = self._at_once(size * (passes + 2 * kept + 3 * skips) + formed)
        return replace(audit.capture, to_input=True, residuals=False, side_by_side=together, chunk=chunk)

    def _at_once(self, bytes_each: float) -> int:
        return max(1, min(MOST_AT_ONCE, int(self._audit.train.room // max(1.0, bytes_each))))

    @property
    def _size(self) -> int:
        return next(self._audit.network.parameters()).element_size()

    @cached_property
    def _few(self) -> Tensor:
        """A batch as the network takes it."""
        batch = self._audit.capture.fixed_batch
        return as_fed(self._audit.network, filled(self._x[: batch or 2], batch or 1))

    @cached_property
    def _numbers(self) -> float:
        return forward_cost(self._audit.network, self._few, ()).numbers


@dataclass(frozen=True)
class _Found:
    """Columns of the picked samples."""

    input: InputColumns | None
    layers: Mapping[str, LayerColumns]
    first: DenseLayer
    samples: SampleColumns
    norm_error: float | None = None
    skipped: str | None = None


class _SingleProducts(LayerProducts):
    """J W in the arithmetic of the network, which single precision makes twice as quick."""

    @cached_property
    def JW(self) -> Tensor:
        """J W  [n, C, T, in], float64."""
        layer = self.layer
        if layer.JW is not None:
            return layer.JW.double()
        rows = layer.J.reshape(-1, layer.W.shape[0])  # one product: a broadcast one would read W for every sample
        return (rows @ layer.W).reshape(*layer.J.shape[:-1], -1).double()
