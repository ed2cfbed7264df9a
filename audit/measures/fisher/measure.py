"""How alike are the pulls of the train samples on the weights? ln det of the Fisher information (Jia & Su 2020).

g_i = gradient of sample i's loss with respect to all P parameters; ξ = Gram matrix of the g_i of N′ train samples;
γ̂ = mean over T random subsets of ln det ξ (Eq. 6). Lower is better in the source study.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from audit.measures.contract import Audit, Fold, Measure, Measurement
from audit.measures.fisher.card import CARDS
from audit.measures.fisher.determinant import log_determinants, resolve_doubtful
from audit.measures.fisher.gram import GradientSource, divides_logits, draw_subsets, normalized_gradient
from audit.measures.fisher.robustness import robustness_of, squared_slope
from audit.measures.fisher.sampled import SampledFisher, SkippedFisher
from audit.measures.fisher.summary import Summary, over_subsets
from audit.network.record import Products, Record
from audit.report.fields import Card


class Fisher:
    """ln det of the Fisher information, from sample subsets."""

    key = "fisher"
    question = "How alike are the pulls of the train samples on the weights?"
    cards: tuple[Card, ...] = CARDS

    def start(self, audit: Audit) -> Fold:
        """In the form that the plan has for it."""
        forms: dict[str, Callable[[Audit], Fold]] = {"sampled": SampledFisher, "skipped": SkippedFisher}
        return forms.get(audit.plan.stage(self.key).form, _FisherFold)(audit)


MEASURE: Measure = Fisher()


class _FisherFold:
    """Subsets of all train samples, their gradients taken from the records."""

    def __init__(self, audit: Audit) -> None:
        self.audit, chosen = audit, audit.settings
        self.subsets = draw_subsets(len(audit.train), chosen.subset_size, chosen.subsets, chosen.seed)
        self.source = GradientSource(audit, self.subsets, self._cotangent)
        self.slopes: list[Tensor] = []

    def see(self, record: Record, products: Products) -> None:
        """Takes the robustness of every sample, and the gradients of the drawn ones."""
        if products.input_map is not None and record.loss_function.class_per_sample:
            self.slopes.append(squared_slope(record.loss_function, record.f, record.y, *products.input_map))
        self.source.see(record)

    def finish(self) -> Measurement:
        """All determinants at once."""
        grams = self.source.grams()
        K = functools.reduce(torch.add, grams.values())
        layers = {layer.name: log_determinants(grams[layer.name]) for layer in self.audit.layers}
        whole = log_determinants(K)
        if self.audit.network_is_double:  # gradients in single precision know no more than their Gram matrix
            resolve_doubtful(layers, whole, self.source)
        summary = Summary(self.audit, self.subsets, self.source.sizes, functools.partial(over_subsets, self.audit))
        return summary.measurement(K, layers, whole, robustness_of(self.audit, self.slopes))

    def _cotangent(self, record: Record) -> Tensor:
        if divides_logits(self.audit):
            return normalized_gradient(self.audit.loss, record.f, record.y)
        return record.gradient
