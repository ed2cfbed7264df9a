"""The blocks of the report from Gram matrices over subsets, however these were found."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.resample import interval
from audit.maths.shares import chance
from audit.measures.contract import Audit, Measurement
from audit.measures.fisher.block import LayerFisher, NetworkFisher, PacBayes
from audit.measures.fisher.determinant import LogDeterminants, Robustness, largest_eigenvalues
from audit.measures.fisher.gram import divides_logits
from audit.network.loss import SquaredError
from audit.report.fields import Interval

Draws = NDArray[np.float64]
WHOLE = ""
Spread = Callable[[str, LogDeterminants], Draws | None]
"""What γ̂ of a layer, or of the `WHOLE` network, might have been instead, [draws]; None where nothing can be said."""


@dataclass(frozen=True)
class Summary:
    """What the Gram matrices of some subsets say, all of them for the same subsets."""

    audit: Audit
    subsets: NDArray[np.int64]  # [T, N′] positions of train samples
    sizes: Mapping[str, int]  # parameters by layer name, and of the rest
    spread: Spread

    def measurement(
        self, K: Tensor, layers: Mapping[str, LogDeterminants], whole: LogDeterminants, robustness: Robustness
    ) -> Measurement:
        """Blocks of the layers and of the network; K [T, N′, N′] over all parameters."""
        blocks = {name: self._layer(name, dets) for name, dets in layers.items()}
        return Measurement(blocks, self._network(K, whole, robustness))

    def _layer(self, name: str, dets: LogDeterminants) -> LayerFisher:
        gamma, std, ci = self._statistics(name, dets)
        why = None if gamma is not None else _why_singular(dets, self.sizes[name], self.subsets.shape[1])
        singular = int((~dets.regular).sum())
        return LayerFisher(gamma=gamma, gamma_std=std, gamma_ci95=ci, singular_subsets=singular, skipped=why)

    def _network(self, K: Tensor, dets: LogDeterminants, robustness: Robustness) -> NetworkFisher:
        gamma, std, ci = self._statistics(WHOLE, dets)
        size, P = self.subsets.shape[1], sum(self.sizes.values())
        regular = dets.regular
        frobenius = K.square().sum((1, 2)) / size**2
        fourth_powers = K.diagonal(dim1=1, dim2=2).square().mean(1)
        radius = largest_eigenvalues(K) / size
        bounded = not isinstance(self.audit.loss, SquaredError)
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
            robustness=robustness.value,
            robustness_ci95=robustness.ci95,
            robustness_skipped=robustness.skipped,
            frobenius_norm=float(frobenius.mean()),
            frobenius_norm_std=_std(frobenius),
            frobenius_norm_per_sample=float(fourth_powers.mean()),
            frobenius_norm_per_sample_std=_std(fourth_powers),
            spectral_radius=float(radius.mean()),
            spectral_radius_std=_std(radius),
            normalized_logits=divides_logits(self.audit),
            pac_bayes=None if gamma is None or not bounded else self._bound(dets, size, P),
            pac_bayes_skipped=None if bounded else NO_SCALE,
            skipped=None if gamma is not None else _why_singular(dets, P, size),
        )

    def _statistics(self, name: str, dets: LogDeterminants) -> tuple[float | None, float | None, Interval]:
        """γ̂, its deviation and its interval over the regular subsets."""
        values = dets.values[dets.regular]
        if not len(values):
            return None, None, None
        draws = self.spread(name, dets)
        return float(values.mean()), _std(values), None if draws is None else interval(draws)

    def _bound(self, dets: LogDeterminants, size: int, P: int) -> PacBayes | None:
        """Theorem 1 for the subsets that have a determinant."""
        chosen, train = self.audit.settings, self.audit.train_outcome
        gamma, gammas = float(dets.values[dets.regular].mean()), self.spread(WHOLE, dets)
        theorem = Theorem(size, P, len(self.audit.train), chosen.volume, chosen.delta)
        losses = self.audit.bootstrap.means(train.loss[:, None])[:, 0]
        draws = (np.full(len(losses), gamma) if gammas is None else gammas, losses)
        guessing = -math.log(chance(len(self.audit.data.classes or ())))
        test_loss = float(self.audit.test_outcome.loss.mean())
        return pac_bayes(theorem, gamma, float(train.loss.mean()), draws, guessing, test_loss)


def over_subsets(audit: Audit, _name: str, dets: LogDeterminants) -> Draws | None:
    """The bootstrap over the regular subsets; None for a single one."""
    values = dets.values[dets.regular]
    return audit.bootstrap.means(values.cpu().numpy()[:, None])[:, 0] if len(values) > 1 else None


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


# Theorem 1 of Jia & Su (2020): a PAC-Bayes bound on the loss, from γ̂ and a volume that is chosen, not known.
#
# L ≤ L₀ + 2 √((2 L₀ + 2 A + ln(2N/δ)) / (N − 1)) with A = V^{2/P} π^{1/P} e^{γ̂/N′} / (4πe)
#
# γ/P = γ̂/N′ − ln P is put in, and the train loss stands for its mean over the neighbourhood.


Array = NDArray[np.float64]
LARGEST_EXPONENT = 700.0  # beyond it the bound is no number any more, and there is none
CAVEAT = (
    "Not a guarantee: the theorem is for a bounded loss and a strict local minimum, cross-entropy is unbounded, and "
    "the volume is a free choice. The term ln(2N/δ) usually outweighs the Fisher information."
)


NO_SCALE = (
    "The theorem is for a loss between 0 and 1. A squared error has the unit of its targets, squared, and so would the "
    "bound: in another unit it would say something else."
)


@dataclass(frozen=True)
class Theorem:
    """What the bound is about."""

    subset: int  # N′
    parameters: int  # P
    samples: int  # N
    volume: float  # V
    delta: float  # δ

    def exponent(self, gamma: Array) -> Array:
        """ln(4πe A)."""
        return gamma / self.subset + (2 * math.log(self.volume) + math.log(math.pi)) / self.parameters

    def complexity(self, gamma: Array) -> Array:
        """A."""
        complexity: Array = np.exp(np.minimum(self.exponent(gamma), LARGEST_EXPONENT)) / (4 * math.pi * math.e)
        return complexity

    def bound(self, gamma: Array, loss: Array) -> Array:
        """The right side."""
        inside = 2 * loss + 2 * self.complexity(gamma) + math.log(2 * self.samples / self.delta)
        right: Array = loss + 2 * np.sqrt(inside / (self.samples - 1))
        return right


def pac_bayes(
    theorem: Theorem, gamma: float, loss: float, draws: tuple[Array, Array], guessing: float, test_loss: float
) -> PacBayes | None:
    """The bound with its interval; `draws` are of γ̂ and of the loss. None where it is beyond all numbers."""
    at = np.array(gamma)
    if theorem.exponent(at) > LARGEST_EXPONENT:
        return None
    bound = float(theorem.bound(at, np.array(loss)))
    return PacBayes(
        bound=bound,
        bound_ci95=interval(theorem.bound(*draws)),
        volume=theorem.volume,
        delta=theorem.delta,
        complexity=float(theorem.complexity(at)),
        complexity_ci95=interval(theorem.complexity(draws[0])),
        vacuous=bound > guessing,
        exceeded=test_loss > bound,
        caveat=CAVEAT,
    )
