"""How flat is the train loss around these weights? Petzka et al.'s measures, which rescaling a network cannot change.

Meaning   curvature of the mean train loss in one layer's weights, weighted by those weights: small is flat.
Source    Petzka, Adilova, Kamp & Sminchisescu (2019), Table 1, all eleven; relative flatness: Petzka et al. (2021).
Can tell  which of two models with the same data and the same train loss sits in the flatter place, and in which layer.
Cannot    be compared where the train loss or the data differ: a classifier's Hessian shrinks with its loss.

Everything but λ_max is a mean over samples, folded from the one pass; λ_max takes some products with the Hessian.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.blocks.flatness import LayerFlatness, NetworkFlatness
from audit.card import Card
from audit.cards.flatness import CARDS
from audit.curvature.spectrum import LayerHessian
from audit.flatness.summary import Sums, Top, layer_block, network_block
from audit.flatness.terms import is_probed, terms_of
from audit.layers import DenseLayer, dense_only
from audit.measure import Audit, Fold, Measurement
from audit.record import Record
from audit.resample import resampled_means

CONVOLUTION = "a convolution, whose numbers stand by themselves"
NO_LAYER = "no dense layer could be measured; each layer says why"


@dataclass(frozen=True)
class Flatness:
    """The measure."""

    key: str = "flatness"
    question: str = "How flat is the train loss around the weights of each layer, whatever their scale?"
    cards: tuple[Card, ...] = CARDS

    def start(self, audit: Audit) -> Fold:
        """Begins an audit."""
        return _Fold(audit)


class _Fold:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._skipped = {layer.name: why for layer in audit.layers if (why := _why_not(audit, layer)) is not None}
        self._layers = [layer for layer in audit.layers if layer.name not in self._skipped]
        self._weights = {layer.name: audit.weight(layer) for layer in self._layers}
        self._sums = {layer.name: Sums() for layer in self._layers}

    def see(self, record: Record) -> None:
        """Everything that is a mean over samples."""
        for layer in self._layers:
            bias = self._audit.network.get_submodule(layer.module).bias if layer.bias else None
            assert bias is None or isinstance(bias, Tensor)
            terms = terms_of(record, layer.name, self._weights[layer.name], bias, self._audit.settings.seed)
            captured = record.layers[layer.name]
            self._sums[layer.name].add(terms, "estimated" if is_probed(captured) else captured.curvature)

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
        tops = [_top(audit, layer) for layer in self._layers]
        sums = [self._sums[layer.name] for layer in self._layers]
        quotients = [top.quotients[:, None] for top in tops]
        columns = np.concatenate([part.by_sample() for part in sums] + quotients, 1)
        draws = resampled_means(columns, audit.settings.bootstrap, audit.settings.seed)
        shares, lambdas = draws[:, : -len(tops)].reshape(len(draws), len(tops), -1), draws[:, -len(tops) :]
        for number, (layer, own, top) in enumerate(zip(self._layers, sums, tops, strict=True)):
            norm2 = _norm2(audit, layer)
            blocks[layer.name] = layer_block(norm2, own, top, shares[:, number], lambdas[:, number])
        network = replace(self._network(blocks, shares), bootstrap=audit.settings.bootstrap)
        return Measurement({layer.name: blocks[layer.name] for layer in audit.layers}, network)

    def _network(self, blocks: dict[str, LayerFlatness], shares: NDArray[np.float64]) -> NetworkFlatness:
        """Maxima and sums over the dense layers that could be measured; shares [draws, layers, 4]."""
        summed = [layer for layer in dense_only(self._audit.layers) if layer in self._layers]
        if not summed:
            return NetworkFlatness(skipped=NO_LAYER)
        places = [self._layers.index(layer) for layer in summed]
        outside = dict.fromkeys((layer.name for layer in self._layers if layer not in summed), CONVOLUTION)
        notes = [f"{name} is not among them: {why}" for name, why in {**self._skipped, **outside}.items()]
        measured = {layer.name: blocks[layer.name] for layer in summed}
        return replace(network_block(measured, shares[:, places]), notes=notes)


def _top(audit: Audit, layer: DenseLayer) -> Top:
    """λ_max and, at its eigenvector, each sample's share of it."""
    value, vector, residual = audit.spectra.largest(layer)
    quotients = LayerHessian(audit.train, layer).rayleigh_quotients(vector).cpu().numpy()
    return Top(value, residual, quotients)


def _why_not(audit: Audit, layer: DenseLayer) -> str | None:
    """A weight that also acts elsewhere has another Hessian than that of z = W x with x held fixed."""
    if layer.tied_with:
        return (
            f"its weights are also those of {', '.join(layer.tied_with)}, so the loss bends with them in both places "
            "at once; the Hessian of this layer alone does not exist"
        )
    if layer.calls > 1 and _feeds_itself(audit, layer):
        return (
            f"it is used {layer.calls} times and is fed by its own earlier answers, so its input moves with its "
            "weights; the measure needs an input that does not"
        )
    return None


def _feeds_itself(audit: Audit, layer: DenseLayer) -> bool:
    """Whether changing the layer's weights changes what it is given."""
    changed = copy.deepcopy(audit.network)
    weight = layer.weight(changed)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight += noise.to(weight.device, weight.dtype) * (1 + weight.abs().mean())
    few = slice(0, min(4, len(audit.train)))
    captures = (audit.capture, replace(audit.capture, network=changed))
    before, after = (next(capture.forward(audit.train.x[few], audit.train.y[few])) for capture in captures)
    return not torch.equal(before.layers[layer.name].x, after.layers[layer.name].x)


def _norm2(audit: Audit, layer: DenseLayer) -> float:
    return float(audit.weight(layer).square().sum())
