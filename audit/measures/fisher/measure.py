"""How alike are the pulls of the train samples on the weights? ln det of the Fisher information (Jia & Su 2020).

g_i = gradient of sample i's loss with respect to all P parameters; ξ = Gram matrix of the g_i of N′ train samples;
γ̂ = mean over T random subsets of ln det ξ (Eq. 6). Lower is better in the source study.
"""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.decompositions import eigvalsh, largest_singular_value
from audit.maths.resample import Resampled, interval
from audit.maths.shares import chance
from audit.measures.contract import Audit, Fold, Measure, Measurement
from audit.measures.fisher.block import LayerFisher, NetworkFisher, PacBayes
from audit.measures.fisher.card import CARDS
from audit.measures.fisher.determinant import (
    LogDeterminants,
    largest_eigenvalues,
    log_determinants,
    resolve_doubtful,
)
from audit.measures.fisher.gram import GradientSource
from audit.measures.fisher.pac_bayes import Theorem, pac_bayes
from audit.network.loss import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from audit.network.record import Products, Record
from audit.report.fields import Card, Interval

LOGIT_SCALE = 0.04  # section 7.2.3
NEARLY_EQUAL = 1e-3  # squared distance of two rows of a Jacobian, over the largest square of a row
NO_FISHER = "The Fisher information of a class distribution does not exist for regression."


class Fisher:
    """ln det of the Fisher information, from sample subsets."""

    key = "fisher"
    question = "How alike are the pulls of the train samples on the weights?"
    cards: tuple[Card, ...] = CARDS

    def start(self, audit: Audit) -> Fold:
        """Draws the subsets; regression has no Fisher information to fold."""
        return _NoFisher(audit) if isinstance(audit.loss, SquaredError) else _FisherFold(audit)


MEASURE: Measure = Fisher()


def draw_subsets(n: int, size: int, count: int, seed: int) -> NDArray[np.int64]:
    """[T, N′] positions of distinct train samples; all of them, once, where there are no more than one subset needs."""
    if n <= size:
        return np.arange(n, dtype=np.int64)[None]
    rng = np.random.default_rng([seed, n, size])
    return np.stack([np.sort(rng.choice(n, size, replace=False)) for _ in range(count)]).astype(np.int64)


def normalized_gradient(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    """∂l/∂f [n, C] where the loss sees f/(0.04 ‖f‖), the derivative of the norm included."""
    norm = f.norm(dim=1, keepdim=True).clamp(min=1e-300)
    g, unit = loss.gradient(f / (LOGIT_SCALE * norm), y), f / norm
    gradient: Tensor = (g - unit * (unit * g).sum(1, keepdim=True)) / (LOGIT_SCALE * norm)
    return gradient


def squared_slope(loss: Loss, f: Tensor, K: Tensor, gram: Tensor) -> Tensor:
    """‖∂softmax/∂input‖₂² = ‖Λ K‖₂² = λ_max(Λ K Kᵀ Λ) of each sample [n], K [n, C, r] the Jacobian of the scores.

    The rows of K are taken relative to that of the largest score, which Λ does not see: so no difference loses digits,
    and what is left is small matrices [n, C, C]. They follow from gram = K Kᵀ, but where two rows are nearly equal.
    """
    if isinstance(loss, BinaryCrossEntropy):  # the softmax of two classes moves by ±σ′
        return 2 * loss.curvature_times(f, K).square().sum((1, 2))
    if K.shape[1] > K.shape[2]:
        return largest_singular_value(loss.curvature_times(f, K)).square()
    if isinstance(loss, CrossEntropy):
        gram = _relative_gram(K, gram, f.argmax(1))
    half = loss.curvature_times(f, gram)
    largest: Tensor = eigvalsh(loss.curvature_times(f, half.mT))[:, -1]
    return largest.clamp(min=0)


def _relative_gram(K: Tensor, gram: Tensor, top: Tensor) -> Tensor:
    """D K Kᵀ Dᵀ [n, C, C], where D takes row `top` [n] of each K off all its rows."""
    n, C = gram.shape[:2]
    one = top[:, None, None]
    by_row = gram - gram.gather(1, one.expand(n, 1, C))
    relative: Tensor = by_row - by_row.gather(2, one.expand(n, C, 1))
    own = relative.diagonal(dim1=1, dim2=2).scatter(1, top[:, None], torch.inf)
    near = ~(own.amin(1) >= NEARLY_EQUAL * gram.diagonal(dim1=1, dim2=2).amax(1))
    if bool(near.any()):
        rest = K[near]
        rest = rest - rest.gather(1, one[near].expand(-1, 1, K.shape[2]))
        relative[near] = rest @ rest.mT
    return relative


class _NoFisher:
    """The answer for regression."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    def see(self, record: Record, products: Products) -> None:
        """Nothing to see."""

    def finish(self) -> Measurement:
        """Says why there is nothing."""
        P = sum(parameter.numel() for parameter in self.audit.network.parameters())
        layer = LayerFisher(gamma=None, gamma_std=None, gamma_ci95=None, singular_subsets=0, skipped=NO_FISHER)
        network = NetworkFisher(
            subsets=0,
            subset_size=0,
            subsets_sha256="",
            singular_subsets=0,
            parameters=P,
            normalized_logits=self.audit.settings.normalized_logits,
            skipped=NO_FISHER,
        )
        return Measurement({each.name: layer for each in self.audit.layers}, network)


class _FisherFold:
    def __init__(self, audit: Audit) -> None:
        self.audit, chosen = audit, audit.settings
        self.subsets = draw_subsets(len(audit.train), chosen.subset_size, chosen.subsets, chosen.seed)
        self.source = GradientSource(audit, self.subsets, self._cotangent)
        self.robustness: list[Tensor] = []

    def see(self, record: Record, products: Products) -> None:
        """Takes the robustness of every sample, and the gradients of the drawn ones."""
        if products.input_map is not None:
            self.robustness.append(squared_slope(record.loss_function, record.f, *products.input_map))
        self.source.see(record)

    def finish(self) -> Measurement:
        """All determinants at once."""
        grams = self.source.grams()
        K = functools.reduce(torch.add, grams.values())
        layers = {layer.name: log_determinants(grams[layer.name]) for layer in self.audit.layers}
        whole = log_determinants(K)
        if self.audit.network_is_double:  # gradients in single precision know no more than their Gram matrix
            resolve_doubtful(layers, whole, self.source)
        return Measurement({name: self._layer(name, dets) for name, dets in layers.items()}, self._network(K, whole))

    def _cotangent(self, record: Record) -> Tensor:
        if self.audit.settings.normalized_logits:
            return normalized_gradient(self.audit.loss, record.f, record.y)
        return record.gradient

    def _layer(self, name: str, dets: LogDeterminants) -> LayerFisher:
        gamma, std, ci = self._statistics(dets)
        why = None if gamma is not None else _why_singular(dets, self.source.sizes[name], self.subsets.shape[1])
        singular = int((~dets.regular).sum())
        return LayerFisher(gamma=gamma, gamma_std=std, gamma_ci95=ci, singular_subsets=singular, skipped=why)

    def _network(self, K: Tensor, dets: LogDeterminants) -> NetworkFisher:
        gamma, std, ci = self._statistics(dets)
        size, P = self.subsets.shape[1], sum(self.source.sizes.values())
        regular = dets.regular
        frobenius = K.square().sum((1, 2)) / size**2
        fourth_powers = K.diagonal(dim1=1, dim2=2).square().mean(1)
        radius = largest_eigenvalues(K) / size
        robustness, robustness_ci = self._robustness()
        return NetworkFisher(
            gamma=gamma,
            gamma_std=std,
            gamma_ci95=ci,
            gamma_norms=None if gamma is None else float(dets.norms[regular].mean()),
            gamma_norms_std=None if gamma is None else _std(dets.norms[regular]),
            gamma_angles=None if gamma is None else float(dets.angles[regular].mean()),
            gamma_angles_std=None if gamma is None else _std(dets.angles[regular]),
            gamma_full=None if gamma is None else _full(gamma, size, P),
            gamma_full_ci95=None if ci is None else (_full(ci[0], size, P), _full(ci[1], size, P)),
            subsets=len(self.subsets),
            subset_size=size,
            subsets_sha256=hashlib.sha256(self.subsets.astype("<i8").tobytes()).hexdigest(),
            singular_subsets=int((~regular).sum()),
            parameters=P,
            robustness=robustness,
            robustness_ci95=robustness_ci,
            frobenius_norm=float(frobenius.mean()),
            frobenius_norm_std=_std(frobenius),
            frobenius_norm_per_sample=float(fourth_powers.mean()),
            frobenius_norm_per_sample_std=_std(fourth_powers),
            spectral_radius=float(radius.mean()),
            spectral_radius_std=_std(radius),
            normalized_logits=self.audit.settings.normalized_logits,
            pac_bayes=None if gamma is None else self._bound(dets, size, P),
            skipped=None if gamma is not None else _why_singular(dets, P, size),
        )

    def _statistics(self, dets: LogDeterminants) -> tuple[float | None, float | None, Interval]:
        """γ̂, its deviation and its interval over the regular subsets."""
        values = (dets.norms + dets.angles)[dets.regular]
        if not len(values):
            return None, None, None
        return float(values.mean()), _std(values), interval(self._drawn(values)) if len(values) > 1 else None

    def _drawn(self, values: Tensor) -> NDArray[np.float64]:
        """Resampled means [draws] of one number per subset."""
        return self.audit.bootstrap.means(values.cpu().numpy()[:, None])[:, 0]

    def _robustness(self) -> tuple[float | None, Interval]:
        if not self.robustness:
            return None, None
        values = {"r": torch.cat(self.robustness).cpu().numpy()}
        means = Resampled(values, self.audit.bootstrap)
        return means.value(lambda r: r, "r"), means.ci95(lambda r: r, "r")

    def _bound(self, dets: LogDeterminants, size: int, P: int) -> PacBayes | None:
        """Theorem 1 for the subsets that have a determinant."""
        chosen, train = self.audit.settings, self.audit.train_outcome
        values = (dets.norms + dets.angles)[dets.regular]
        theorem = Theorem(size, P, len(self.audit.train), chosen.volume, chosen.delta)
        losses = self.audit.bootstrap.means(train.loss[:, None])[:, 0]
        gammas = self._drawn(values) if len(values) > 1 else np.full(len(losses), float(values.mean()))
        guessing = -math.log(chance(train.scores.shape[1]))
        test_loss = float(self.audit.test_outcome.loss.mean())
        return pac_bayes(theorem, float(values.mean()), float(train.loss.mean()), (gammas, losses), guessing, test_loss)


def _full(gamma: float, size: int, P: int) -> float:
    """γ = (P/N′) γ̂ − P ln P (Eq. 7)."""
    return P / size * gamma - P * math.log(P)


def _std(values: Tensor) -> float | None:
    scale = values.abs().max().clamp(min=1e-300)  # squares of large gradients leave the range of numbers
    return float((values / scale).std(correction=0) * scale) if len(values) > 1 else None


def _why_singular(dets: LogDeterminants, parameters: int, size: int) -> str:
    if parameters < size:
        return f"Fewer parameters ({parameters}) than samples in a subset ({size}): the determinant is zero."
    if int(dets.zero_gradients.min()) > 0:
        return "Every subset has samples whose gradient is exactly zero: the determinant is zero."
    return (
        "In every subset the gradients are linearly dependent (duplicate samples, or more samples than a layer before "
        "the scores can tell apart): the determinant is zero."
    )
