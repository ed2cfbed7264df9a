"""Theorem 1 of Jia & Su (2020): a PAC-Bayes bound on the loss, from γ̂ and a volume that is chosen, not known.

L ≤ L₀ + 2 √((2 L₀ + 2 A + ln(2N/δ)) / (N − 1))  with  A = V^{2/P} π^{1/P} e^{γ̂/N′} / (4πe)

γ/P = γ̂/N′ − ln P is put in, and the train loss stands for its mean over the neighbourhood.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import interval
from audit.measures.fisher.block import PacBayes

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
