"""How strongly the class probabilities answer to the input: ‖∂softmax/∂input‖₂² of each sample (section 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.decompositions import eigvalsh, largest_singular_value
from audit.maths.resample import Resampled
from audit.measures.contract import Audit
from audit.network.loss import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from audit.report.fields import Interval

NEARLY_EQUAL = 1e-3  # squared distance of two rows of a Jacobian, over the largest square of a row
NO_SOFTMAX = "A regression has no class probabilities, so that these have no slope."
MANY_SOFTMAXES = "A sample has the probabilities of many positions; the source is about one softmax per sample."
NO_SLOPE = "The input has no derivative: it is made of whole numbers."


@dataclass(frozen=True)
class Robustness:
    """Its mean over samples, or why there is none."""

    value: float | None = None
    ci95: Interval = None
    skipped: str | None = None


def robustness_of(audit: Audit, slopes: Sequence[Tensor]) -> Robustness:
    """From the squared slopes of each chunk of samples [n]."""
    if not audit.loss.class_per_sample:
        return Robustness(skipped=no_softmax(audit.loss))
    if not slopes:
        return Robustness(skipped=NO_SLOPE)
    means = Resampled({"r": torch.cat(list(slopes)).cpu().numpy()}, audit.bootstrap)
    return Robustness(means.value(lambda r: r, "r"), means.ci95(lambda r: r, "r"))


def no_softmax(loss: Loss) -> str:
    """Why a loss without one class per sample has no robustness."""
    return NO_SOFTMAX if isinstance(loss, SquaredError) else MANY_SOFTMAXES


def squared_slope(loss: Loss, f: Tensor, y: Tensor, K: Tensor, gram: Tensor) -> Tensor:
    """‖∂softmax/∂input‖₂² = ‖Λ K‖₂² = λ_max(Λ K Kᵀ Λ) of each sample [n], K [n, C, r] the Jacobian of the scores.

    The rows of K are taken relative to that of the largest score, which Λ does not see: so no difference loses digits,
    and what is left is small matrices [n, C, C]. They follow from gram = K Kᵀ, but where two rows are nearly equal.
    """
    if isinstance(loss, BinaryCrossEntropy):  # the softmax of two classes moves by ±σ′
        return 2 * loss.curvature_times(f, y, K).square().sum((1, 2))
    if K.shape[1] > K.shape[2]:
        return largest_singular_value(loss.curvature_times(f, y, K)).square()
    if isinstance(loss, CrossEntropy):
        gram = _relative_gram(K, gram, f.argmax(1))
    half = loss.curvature_times(f, y, gram)
    largest: Tensor = eigvalsh(loss.curvature_times(f, y, half.mT))[:, -1]
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
