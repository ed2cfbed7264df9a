"""How alike are the pulls of the train samples on the weights? ln det of the Fisher information (Jia & Su 2020).

g_i = gradient of sample i's loss with respect to all P parameters; ξ = Gram matrix of the g_i of N′ train samples;
γ̂ = mean over T random subsets of ln det ξ (Eq. 6). Lower is better in the source study.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.blocks.fisher import LayerFisher, NetworkFisher, PacBayes
from audit.card import Card
from audit.cards.fisher import CARDS
from audit.fields import Interval
from audit.gradients.gram import GradientSource, LogDeterminants, largest_eigenvalues, log_determinants
from audit.loss import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from audit.measure import Audit, Fold, Measurement
from audit.record import Record
from audit.resample import Resampled, interval, resampled_means
from audit.sensitivity.singular import largest_singular_value

LOGIT_SCALE = 0.04  # section 7.2.3
LARGEST_EXPONENT = 700.0  # beyond it the bound is no number any more, and there is none
NO_FISHER = "The Fisher information of a class distribution does not exist for regression."
CAVEAT = (
    "Not a guarantee: the theorem is for a bounded loss and a strict local minimum, cross-entropy is unbounded, and "
    "the volume is a free choice. The term ln(2N/δ) usually outweighs the Fisher information."
)


class Fisher:
    """ln det of the Fisher information, from sample subsets."""

    key = "fisher"
    question = "How alike are the pulls of the train samples on the weights?"
    cards: tuple[Card, ...] = CARDS

    def start(self, audit: Audit) -> Fold:
        """Draws the subsets; regression has no Fisher information to fold."""
        return _NoFisher(audit) if isinstance(audit.loss, SquaredError) else _FisherFold(audit)


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
    pulled: Tensor = (g - unit * (unit * g).sum(1, keepdim=True)) / (LOGIT_SCALE * norm)
    return pulled


def squared_slope(loss: Loss, f: Tensor, K: Tensor) -> Tensor:
    """‖∂softmax/∂input‖₂² = ‖Λ K‖₂² = λ_max(Λ K Kᵀ Λ) of each sample [n], K [n, C, r] the Jacobian of the scores.

    The rows of K are taken relative to that of the largest score, which Λ does not see: so no difference loses digits,
    and what is left is small matrices [n, C, C].
    """
    if isinstance(loss, BinaryCrossEntropy):  # the softmax of two classes moves by ±σ′
        return 2 * loss.curvature_times(f, K).square().sum((1, 2))
    if K.shape[1] > K.shape[2]:
        return largest_singular_value(loss.curvature_times(f, K)).square()
    if isinstance(loss, CrossEntropy):
        K = K - K.gather(1, f.argmax(1)[:, None, None].expand(-1, 1, K.shape[2]))
    half = loss.curvature_times(f, K @ K.mT)
    largest: Tensor = torch.linalg.eigvalsh(loss.curvature_times(f, half.mT))[:, -1]
    return largest.clamp(min=0)


class _NoFisher:
    """The answer for regression."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    def see(self, record: Record) -> None:
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

    def see(self, record: Record) -> None:
        """Takes the robustness of every sample, and the gradients of the drawn ones."""
        if record.input_factor is not None:
            self.robustness.append(squared_slope(record.loss_function, record.f, record.input_factor()))
        self.source.see(record)

    def finish(self) -> Measurement:
        """All determinants at once."""
        grams = self.source.grams()
        whole = torch.stack(list(grams.values())).sum(0)
        names = [layer.name for layer in self.audit.layers]
        layers = {name: self._layer(name, log_determinants(grams[name])) for name in names}
        return Measurement(layers, self._network(whole, log_determinants(whole)))

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
        radius = largest_eigenvalues(K) / size
        robustness, robustness_ci = self._robustness()
        return NetworkFisher(
            gamma=gamma,
            gamma_std=std,
            gamma_ci95=ci,
            gamma_norms=None if gamma is None else float(dets.norms[regular].mean()),
            gamma_angles=None if gamma is None else float(dets.angles[regular].mean()),
            gamma_full=None if gamma is None else P / size * gamma - P * math.log(P),
            subsets=len(self.subsets),
            subset_size=size,
            subsets_sha256=hashlib.sha256(self.subsets.astype("<i8").tobytes()).hexdigest(),
            singular_subsets=int((~regular).sum()),
            parameters=P,
            robustness=robustness,
            robustness_ci95=robustness_ci,
            frobenius_norm=float(frobenius.mean()),
            frobenius_norm_std=_std(frobenius),
            frobenius_norm_per_sample=float(K.diagonal(dim1=1, dim2=2).square().mean()),
            spectral_radius=float(radius.mean()),
            spectral_radius_std=_std(radius),
            normalized_logits=self.audit.settings.normalized_logits,
            pac_bayes=None if gamma is None else self._bound(gamma, size, P),
            skipped=None if gamma is not None else _why_singular(dets, P, size),
        )

    def _statistics(self, dets: LogDeterminants) -> tuple[float | None, float | None, Interval]:
        """γ̂, its deviation and its interval over the regular subsets."""
        values = (dets.norms + dets.angles)[dets.regular]
        if not len(values):
            return None, None, None
        column = values.cpu().numpy()[:, None]
        draws = resampled_means(column, self.audit.settings.bootstrap, self.audit.settings.seed)
        return float(values.mean()), _std(values), interval(draws[:, 0]) if len(values) > 1 else None

    def _robustness(self) -> tuple[float | None, Interval]:
        if not self.robustness:
            return None, None
        values = {"r": torch.cat(self.robustness).cpu().numpy()}
        means = Resampled(values, self.audit.settings.bootstrap, self.audit.settings.seed)
        return means.value(lambda r: r, "r"), means.ci95(lambda r: r, "r")

    def _bound(self, gamma: float, size: int, P: int) -> PacBayes | None:
        """Theorem 1, with γ/P = γ̂/N′ − ln P put in and the train loss for its mean over the neighbourhood."""
        chosen, N = self.audit.settings, len(self.audit.train)
        loss = float(self.audit.train_outcome.loss.mean())
        exponent = gamma / size + (2 * math.log(chosen.volume) + math.log(math.pi)) / P
        if exponent > LARGEST_EXPONENT:
            return None
        complexity = math.exp(exponent) / (4 * math.pi * math.e)
        bound = loss + 2 * math.sqrt((2 * loss + 2 * complexity + math.log(2 * N / chosen.delta)) / (N - 1))
        guessing = math.log(max(2, self.audit.train_outcome.scores.shape[1]))
        exceeded = float(self.audit.test_outcome.loss.mean()) > bound
        return PacBayes(
            bound=bound,
            volume=chosen.volume,
            delta=chosen.delta,
            complexity=complexity,
            vacuous=bound > guessing,
            exceeded=exceeded,
            caveat=CAVEAT,
        )


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
