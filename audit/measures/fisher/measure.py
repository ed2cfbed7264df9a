"""How alike are the train samples' gradients? ln det of the Fisher information (Jia & Su 2020).

g_i = gradient of sample i's loss with respect to all P parameters; ξ = Gram matrix of the g_i of N′ train samples;
γ̂ = mean over T random subsets of ln det ξ (Eq. 6). Lower is better in the source study.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.measures.contract import Audit, Fold, Measure, Measurement
from audit.measures.fisher import DEMAND
from audit.measures.fisher.block import LayerFisher, NetworkFisher
from audit.measures.fisher.card import CARDS
from audit.measures.fisher.determinant import (
    SINGLE,
    LogDeterminants,
    Robustness,
    log_determinants,
    no_softmax,
    resolve_doubtful,
    robustness_of,
    squared_slope,
)
from audit.measures.fisher.gram import (
    GradientSource,
    divides_logits,
    draw_subsets,
    normalized_gradient,
    parameter_counts,
)
from audit.measures.fisher.summary import WHOLE, Draws, Summary, over_subsets
from audit.measures.workload import Demand
from audit.network.pool_gradients import Pool, pool_grams
from audit.network.record import Products, Record
from audit.report.fields import Card


class Fisher:
    """ln det of the Fisher information, from sample subsets."""

    key = "fisher"
    question = "How alike are the train samples' gradients?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

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


# The Fisher determinant from one pool of train samples, where the gradients of all are too many to form.
#
# The subsets are drawn from a pool of m of the n train samples, so they share samples, and their spread says too
# little. How far γ̂ may be off is told by what single samples do: d_i = ln det ξ − ln det ξ without i = −ln (ξ⁻¹)_ii.
# To first order γ̂ moves with the pool as N′ times the mean of the d_i; of a single subset, N′ Var(d) bounds the
# variance (Efron and Stein):
#
#     error² = N′² Var_i(d_i)/m · (1 − m/n)  +  Var_t(ln det ξ^t)/T


NOT_SAMPLED = "Measured only where every sample has its derivatives in the input taken."


def draw_pool(n: int, size: int, seed: int) -> NDArray[np.int64]:
    """Positions [m] of distinct train samples, in their order; all of them where `size` is 0 or more than there are."""
    if not 0 < size < n:
        return np.arange(n, dtype=np.int64)
    return np.sort(np.random.default_rng([seed, n, size, 1]).choice(n, size, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class Drawn:
    """Subsets of a pool of the train samples."""

    subsets: NDArray[np.int64]  # [T, N′] places in the pool
    train: int  # n, samples that the pool was drawn from

    @property
    def samples(self) -> int:
        """Distinct samples in the subsets."""
        return len(np.unique(self.subsets))


def determinant_error(K: Tensor, dets: LogDeterminants, drawn: Drawn) -> float | None:
    """Of γ̂ for Gram matrices K [T, N′, N′]; None where no subset has a determinant, or one alone holds all samples."""
    regular = dets.regular
    if not bool(regular.any()):
        return None
    values, size = dets.values[regular], K.shape[1]
    places = torch.from_numpy(drawn.subsets)[regular]
    sums, counts = torch.zeros(2, int(drawn.subsets.max()) + 1, dtype=torch.float64)
    sums.index_add_(0, places.flatten(), single_samples(K[regular]).flatten())
    counts.index_add_(0, places.flatten(), torch.ones(places.numel(), dtype=torch.float64))
    d = (sums / counts)[counts > 0]
    m, T = len(d), len(values)
    pools = float(d.var()) * size**2 / m * max(0.0, 1 - m / drawn.train) if m > 1 else 0.0
    subsets = float(values.var()) / T if T > 1 else 0.0
    return (pools + subsets) ** 0.5 or None


def single_samples(K: Tensor) -> Tensor:
    """d_i = −ln (ξ⁻¹)_ii [T, N′]: ln of the squared distance of g_i from what the others span."""
    squares = K.diagonal(dim1=1, dim2=2)
    scale = squares.rsqrt()
    inverse = torch.linalg.inv(K * scale[:, :, None] * scale[:, None, :])
    diagonal: Tensor = inverse.diagonal(dim1=1, dim2=2)
    return squares.log() - diagonal.clamp(min=1).log()


class SampledFisher:
    """Everything from the Gram matrices of one pool."""

    def __init__(self, audit: Audit) -> None:
        self.audit, chosen = audit, audit.settings
        self.pool = draw_pool(len(audit.train), audit.plan.stage("fisher").samples, chosen.seed)
        places = draw_subsets(len(self.pool), chosen.subset_size, chosen.subsets, chosen.seed)
        self.drawn = Drawn(places, len(audit.train))

    def see(self, record: Record, products: Products) -> None:
        """Nothing: the pool is run through the network by itself."""

    def finish(self) -> Measurement:
        """All determinants at once."""
        pool = self._samples()
        room = self.audit.plan.stage("fisher").bytes or self.audit.train.room
        found = pool_grams(self.audit.capture, pool, min(room, self.audit.train.room))
        grams = {name: K.cpu() for name, K in found.items()}
        repeated = self._repeated(pool)
        layers, errors = {}, {}
        for layer in self.audit.layers:
            layers[layer.name], errors[layer.name] = self._judged(self._among(grams[layer.name]), repeated)
        K = self._among(functools.reduce(torch.add, grams.values()))
        whole, errors[WHOLE] = self._judged(K, repeated)
        spread = functools.partial(_normal, self.audit, errors)
        summary = Summary(self.audit, self.pool[self.drawn.subsets], parameter_counts(self.audit), spread)
        measured = summary.measurement(K, layers, whole, self._robustness())
        marked = replace(measured.network, form="sampled", pool=self.drawn.samples, note=self._note())
        return replace(measured, network=marked)

    def _samples(self) -> Pool:
        """The pool, and ∂l/∂f of its samples."""
        rows = torch.from_numpy(self.pool)
        x, y = self.audit.train.x[rows], self.audit.train.y[rows]
        f = torch.from_numpy(self.audit.train_outcome.scores[self.pool])
        if divides_logits(self.audit):
            return Pool(x, y, normalized_gradient(self.audit.loss, f, y.cpu()))
        return Pool(x, y, self.audit.loss.gradient(f, y.cpu()))

    def _among(self, K: Tensor) -> Tensor:
        """[T, N′, N′] of K [m, m] over the pool."""
        at = torch.from_numpy(self.drawn.subsets)
        return K[at[:, :, None], at[:, None, :]]

    def _judged(self, K: Tensor, repeated: Tensor) -> tuple[LogDeterminants, float | None]:
        """Determinants of the subsets, and the standard error of their mean."""
        dets = log_determinants(K, 0.0 if self.audit.network_is_double else SINGLE)
        dets.angles[repeated] = -torch.inf  # whatever the rounding
        return dets, determinant_error(K, dets, self.drawn)

    def _repeated(self, pool: Pool) -> Tensor:
        """[T] whether some sample of a subset, its label included, is there twice."""
        x, y = pool.x.cpu().numpy(), pool.y.cpu().numpy()
        first: dict[tuple[bytes, bytes], int] = {}
        same = np.array(
            [first.setdefault((a.tobytes(), b.tobytes()), i) for i, (a, b) in enumerate(zip(x, y, strict=True))]
        )
        return torch.tensor([len(np.unique(same[subset])) < len(subset) for subset in self.drawn.subsets])

    def _robustness(self) -> Robustness:
        loss = self.audit.loss
        return Robustness(skipped=NOT_SAMPLED if loss.class_per_sample else no_softmax(loss))

    def _note(self) -> str:
        T, size = self.drawn.subsets.shape
        if T == 1:
            return f"One subset of {size} train samples; the interval is from how much single samples change ln det."
        return (
            f"All subsets are drawn from the same {self.drawn.samples} train samples and share many, so that they "
            "differ less than they should; the interval allows for it by how much single samples change ln det."
        )


class SkippedFisher:
    """The answer where the plan has no time for it."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    def see(self, record: Record, products: Products) -> None:
        """Nothing to see."""

    def finish(self) -> Measurement:
        """Says why there is nothing."""
        why = self.audit.plan.stage("fisher").why or "Left out by the plan."
        layer = LayerFisher(gamma=None, gamma_std=None, gamma_ci95=None, singular_subsets=0, skipped=why)
        network = NetworkFisher(
            subsets=0,
            subset_size=0,
            subsets_sha256="",
            singular_subsets=0,
            parameters=sum(parameter.numel() for parameter in self.audit.network.parameters()),
            normalized_logits=divides_logits(self.audit),
            form="skipped",
            skipped=why,
        )
        return Measurement({each.name: layer for each in self.audit.layers}, network)


def _normal(audit: Audit, errors: Mapping[str, float | None], name: str, dets: LogDeterminants) -> Draws | None:
    """Draws of γ̂ with its standard error."""
    error = errors[name]
    if error is None:
        return None
    rng = np.random.default_rng([audit.settings.seed, len(errors)])
    draws: Draws = float(dets.values[dets.regular].mean()) + error * rng.standard_normal(audit.bootstrap.draws)
    return draws
