"""How flat is the train loss around these weights? Petzka et al.'s measures, which rescaling a network cannot change.

Meaning   curvature of the mean train loss in one layer's weights, weighted by those weights: small is flat.
Source    Petzka, Adilova, Kamp & Sminchisescu (2019), Table 1, all eleven; relative flatness: Petzka et al. (2021).
Can tell  which of two models with the same data and the same train loss sits in the flatter place, and in which layer.
Cannot    be compared where the train loss or the data differ: a classifier's Hessian shrinks with its loss.

Everything but λ_max is a mean over samples, folded from the one pass; λ_max takes some products with the Hessian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.curvature.sampled import SampledCurvature
from audit.measures.contract import Audit, Fold, Measure, Measurement, feeds_itself
from audit.measures.flatness import DEMAND
from audit.measures.flatness.block import LayerFlatness, NetworkFlatness
from audit.measures.flatness.card import CARDS
from audit.measures.flatness.summary import Draws, Sums, Top, layer_block, network_block
from audit.measures.flatness.terms import sampled_layer, sampled_network, terms_of
from audit.measures.workload import Demand
from audit.network import DenseLayer, dense_only
from audit.network.record import Products, Record
from audit.network.records import Records
from audit.network.second_derivatives import is_probed
from audit.report.fields import Card

CONVOLUTION = "a convolution, whose numbers stand by themselves"
NO_LAYER = "no dense layer could be measured; each layer says why"


@dataclass(frozen=True)
class Flatness:
    """The measure."""

    key: str = "flatness"
    question: str = "How flat is the train loss around the weights of each layer, whatever their scale?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> Fold:
        """Begins an audit."""
        if audit.sampled is None or audit.plan.is_exact("flatness"):
            return _Fold(audit)
        return _SampledFold(audit, audit.sampled)


MEASURE: Measure = Flatness()


class _Fold:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._skipped = {layer.name: why for layer in audit.layers if (why := _why_not(audit, layer)) is not None}
        self._layers = [layer for layer in audit.layers if layer.name not in self._skipped]
        self._weights = {layer.name: audit.weight(layer) for layer in self._layers}
        self._sums = {layer.name: Sums() for layer in self._layers}

    def see(self, record: Record, products: Products) -> None:
        """Everything that is a mean over samples."""
        for layer in self._layers:
            bias = self._audit.network.get_submodule(layer.module).bias if layer.bias else None
            assert bias is None or isinstance(bias, Tensor)
            n, seed, captured = len(self._audit.train), self._audit.settings.seed, record.layers[layer.name]
            terms = terms_of(products.layers[layer.name], self._weights[layer.name], bias, n, seed)
            self._sums[layer.name].add(terms, "estimated" if is_probed(captured, n) else captured.curvature)

    def finish(self) -> Measurement:
        """The largest eigenvalues, the intervals, and the blocks."""
        audit = self._audit
        blocks = {
            layer.name: LayerFlatness(_norm2(audit, layer), skipped=self._skipped[layer.name])
            for layer in audit.layers
            if layer.name in self._skipped
        }
        if not self._layers:
            return Measurement(blocks, NetworkFlatness(skipped=NO_LAYER))
        norms = {layer.name: _norm2(audit, layer) for layer in self._layers}
        tops, draws = self._tops_and_draws()
        for place, layer in enumerate(self._layers):
            name = layer.name
            blocks[name] = layer_block(norms[name], self._sums[name], tops[name], draws.of(place))
        network = replace(self._network(blocks, draws), bootstrap=audit.settings.bootstrap)
        return Measurement({layer.name: blocks[layer.name] for layer in audit.layers}, network)

    def _tops_and_draws(self) -> tuple[dict[str, Top], Draws]:
        """The largest eigenvalues, and everything resampled, all layers in the same draws."""
        spectra, train = self._audit.spectra, self._audit.train
        largest = {layer.name: spectra.largest(layer) for layer in self._layers}
        directions = {
            name: Directions(vector, self._weights[name], sums.rows.largest(), sums.columns.largest())
            for name, sums in self._sums.items()
            for _, vector, _ in [largest[name]]
        }
        shares = quotients(train, directions)
        columns = [np.concatenate([self._sums[name].by_sample(), shares[name]], 1) for name in self._sums]
        drawn = self._audit.bootstrap.means(np.concatenate(columns, 1))
        by_column = np.moveaxis(drawn.reshape(len(drawn), len(columns), -1), 2, 0)  # [7, draws, layers]
        return {name: Top(value, residual) for name, (value, _, residual) in largest.items()}, Draws(*by_column)

    def _network(self, blocks: dict[str, LayerFlatness], draws: Draws) -> NetworkFlatness:
        """Maxima and sums over the dense layers that could be measured."""
        summed = [layer for layer in dense_only(self._audit.layers) if layer in self._layers]
        if not summed:
            return NetworkFlatness(skipped=NO_LAYER)
        places = [self._layers.index(layer) for layer in summed]
        outside = dict.fromkeys((layer.name for layer in self._layers if layer not in summed), CONVOLUTION)
        notes = [f"{name} is not among them: {why}" for name, why in {**self._skipped, **outside}.items()]
        measured = {layer.name: blocks[layer.name] for layer in summed}
        return replace(network_block(measured, draws.of(places)), notes=notes)


class _SampledFold:
    """Where all samples are too many; nothing is seen of records, for there are none."""

    def __init__(self, audit: Audit, sampled: SampledCurvature) -> None:
        self._audit, self._sampled = audit, sampled

    def see(self, record: Record, products: Products) -> None:
        """Nothing."""

    def finish(self) -> Measurement:
        """Everything from random signs and columns of most energy."""
        audit = self._audit
        reasons = {layer.name: _why_not(audit, layer) for layer in audit.layers}
        blocks = {
            layer.name: sampled_layer(self._sampled, layer)
            if (why := reasons[layer.name]) is None
            else LayerFlatness(_norm2(audit, layer), skipped=why)
            for layer in audit.layers
        }
        outside = {layer.name: CONVOLUTION for layer in audit.layers if layer not in dense_only(audit.layers)}
        left_out = {name: why for name, why in {**reasons, **outside}.items() if why is not None}
        summed = [name for name in blocks if name not in left_out]
        if not summed:
            return Measurement(blocks, NetworkFlatness(skipped=NO_LAYER))
        notes = [f"{name} is not among them: {why}" for name, why in left_out.items()]
        return Measurement(blocks, sampled_network(blocks, summed, self._sampled.sums, notes))


def _why_not(audit: Audit, layer: DenseLayer) -> str | None:
    """A weight that also acts elsewhere has another Hessian than that of z = W x with x held fixed."""
    if layer.tied_with:
        return (
            f"its weights are also those of {', '.join(layer.tied_with)}, so the loss is curved by them in both places "
            "at once; the Hessian of this layer alone does not exist"
        )
    if layer.calls > 1 and feeds_itself(audit, layer):
        return (
            f"it is used {layer.calls} times and is fed by its own earlier answers, so its input moves with its "
            "weights; the measure needs an input that does not"
        )
    return None


def _norm2(audit: Audit, layer: DenseLayer) -> float:
    return float(audit.weight(layer).square().sum())


# What each sample adds to the largest eigenvalue and to the largest neurons of a layer, once these are known.
# λ_max, the largest row and the largest column are quadratic forms of the Hessian in fixed directions of the
# weights: the
# eigenvector V, the matrix with row j of W alone, the matrix with column i of W alone. Each moves the layer's answer by
# u = V x, and the sample's share is uᵀ S u.


@dataclass(frozen=True)
class Directions:
    """Directions in the weights [out, in] of one layer."""

    eigenvector: Tensor  # [out, in]
    W: Tensor  # [out, in]
    row: int
    column: int

    def answers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """V x for each of the three directions [n, T, out]; x [n, T, in]."""
        row = torch.zeros(*x.shape[:2], len(self.W), dtype=x.dtype, device=x.device)
        row[:, :, self.row] = x @ self.W[self.row]
        return x @ self.eigenvector.T, row, x[:, :, self.column, None] * self.W[:, self.column]


def quotients(records: Records, layers: Mapping[str, Directions]) -> dict[str, NDArray[np.float64]]:
    """Of every layer [n, 3]: each sample's share of λ_max, of the largest row and of the largest column."""
    found: dict[str, list[Tensor]] = {name: [] for name in layers}
    for record in records:
        for name, directions in layers.items():
            moved = directions.answers(record.layers[name].x.double())
            found[name].append(torch.stack([_form(record, name, u) for u in moved], 1).cpu())
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def _form(record: Record, name: str, u: Tensor) -> Tensor:
    """uᵀ S u of every sample [n]."""
    return (u * record.curvature_times(name, u)).sum((1, 2))
