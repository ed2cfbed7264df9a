"""How strongly, and in how many directions, do the scores answer to small changes of the input and of the weights?

Source  "A simple connection from loss flatness to compressed representations in neural networks" (2024): MLS, volume
        and dimensionality of the local map ∂f/∂x, sharpness S(θ), and the inequalities that tie them together.
Way     everything about a dense layer follows from its input x and J = ∂f/∂z: ∂f/∂x = J W, ‖∇_W f‖_F² = ‖J‖_F² ‖x‖².
        Other parameters: per-sample gradients (network/parameter_gradients). Each number is kept sample by sample, so
        that every mean gets a bootstrap interval and every inequality is evaluated once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from audit.maths.blocks import blocks
from audit.measures.contract import Audit, Fold, Measure, Measurement
from audit.measures.sensitivity.card import CARDS
from audit.measures.sensitivity.columns import Columns, SampleColumns, column, joined
from audit.measures.sensitivity.maps import MapFold
from audit.measures.sensitivity.sampled import SampledFold
from audit.measures.sensitivity.sharpness import DenseSquares, TraceFold, dense_squares, sampled_adaptive_sharpness
from audit.measures.sensitivity.summary import summarise
from audit.model.batches import as_fed
from audit.network.layers import dense_only
from audit.network.parameter_gradients import closed_parameters, other_parameters
from audit.network.record import LayerProducts, Products, Record


class Sensitivity:
    """The measure."""

    key = "sensitivity"
    question = "How strongly, and in how many directions, do the scores answer to small changes of the input?"
    cards = CARDS

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
