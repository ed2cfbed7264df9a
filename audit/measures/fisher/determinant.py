"""ln det of Gram matrices of gradients; from the gradients themselves where a Gram matrix has lost too many digits.

A Gram matrix squares the spread of what it is made of. With rounding at 1e-16, an eigenvalue λ of the cosines is good
to 1e-16/λ; a singular value √λ of the gradients themselves, scaled to length 1, is good to 1e-16/√λ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.decompositions import eigvalsh, largest_singular_value, svdvals
from audit.maths.resample import Resampled
from audit.measures.contract import Audit
from audit.measures.fisher.gram import GradientSource
from audit.network.loss import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from audit.report.fields import Interval

DOUBTFUL = 1e-6  # a pivot of the cosines below this may owe its size, or its digits from the ninth on, to rounding
SINGLE = 1e-10  # an eigenvalue of the cosines of gradients that a network found in single precision, where it is zero
DEPENDENT = 1e-10  # a singular value of unit gradients below this is not good to 1e-6: it counts as zero


@dataclass(frozen=True)
class LogDeterminants:
    """ln det of each Gram matrix, in two parts that do not cancel."""

    norms: Tensor  # [T]  Σ_i ln ‖g_i‖²
    angles: Tensor  # [T]  ln det of the cosines; −inf where singular
    zero_gradients: Tensor  # [T]  samples whose gradient is exactly zero
    doubtful: Tensor  # [T]  whether the Gram matrix has lost too many digits

    @property
    def values(self) -> Tensor:
        """[T] ln det."""
        return self.norms + self.angles

    @property
    def regular(self) -> Tensor:
        """[T] whether the determinant is positive."""
        return torch.isfinite(self.angles) & torch.isfinite(self.norms)


def log_determinants(K: Tensor, rounding: float = 0.0) -> LogDeterminants:
    """Ln |ξ| = Σ ln ‖g_i‖² + ln |cosine Gram|, K [T, N′, N′] float64; `rounding` of an eigenvalue of the cosines.

    Gradient norms range over many orders of magnitude; scaled to cosines the Cholesky factor keeps its digits. Where a
    pivot is small, rounding may have made it: there the eigenvalues decide, and one within its rounding error is zero.
    """
    squares = K.diagonal(dim1=1, dim2=2)
    zero = (squares <= 0).sum(1)
    inverse = torch.where(squares > 0, squares, 1.0).rsqrt()
    cosines = K * inverse[:, :, None] * inverse[:, None, :]
    L, info = torch.linalg.cholesky_ex(cosines)
    factors = L.diagonal(dim1=1, dim2=2).square()
    doubtful = (info > 0) | (factors.amin(1) < DOUBTFUL)
    if bool(doubtful.any()):
        factors[doubtful] = eigvalsh(cosines[doubtful])
    tolerance = max(rounding, 4 * K.shape[1] * torch.finfo(torch.float64).eps)
    singular = (factors.amin(1) <= tolerance) | (zero > 0)
    angles = torch.where(singular, -torch.inf, factors.clamp(min=1e-300).log().sum(1))
    norms = torch.where(zero > 0, -torch.inf, squares.clamp(min=1e-300).log().sum(1))
    return LogDeterminants(norms, angles, zero, doubtful & (zero == 0))


def largest_eigenvalues(K: Tensor) -> Tensor:
    """λ_max of each symmetric positive matrix [T, N, N] → [T]."""
    scale = K.abs().amax((1, 2)).clamp(min=1e-300)
    largest: Tensor = eigvalsh(K / scale[:, None, None])[:, -1] * scale
    return largest


def resolve_doubtful(layers: Mapping[str, LogDeterminants], whole: LogDeterminants, source: GradientSource) -> None:
    """Writes over what is doubtful, of layers and of the whole network.

    A sample that is there twice makes a zero of every determinant, whatever the rounding. Of the whole network, the
    triangles of its layers say as much as all their gradients.
    """
    anywhere = torch.stack([dets.doubtful for dets in (*layers.values(), whole)]).any(0)
    for t in anywhere.nonzero()[:, 0].tolist():
        alone, together = {name: dets for name, dets in layers.items() if dets.doubtful[t]}, bool(whole.doubtful[t])
        if source.repeats(t):
            for dets in (*layers.values(), whole):
                dets.angles[t] = -torch.inf
            continue
        triangles = {name: triangle(blocks) for name, blocks in source.columns(t).items() if together or name in alone}
        for name, dets in alone.items():
            dets.angles[t] = log_angles(triangles[name])
        if together:
            whole.angles[t] = log_angles(triangle(triangles.values()))


def triangle(blocks: Iterable[Tensor]) -> Tensor:
    """R [≤ N′, N′] with Rᵀ R = G Gᵀ, that product never formed: QR of the blocks [columns, N′], one after the other."""
    R: Tensor | None = None
    for block in blocks:
        R = torch.linalg.qr(block if R is None else torch.cat([R, block]), mode="r").R
    assert R is not None
    return R


def log_angles(R: Tensor) -> float:
    """Ln det of the cosines between the columns of R [r, N′]; −inf where they are linearly dependent."""
    if R.shape[0] < R.shape[1]:
        return -torch.inf
    s = svdvals(R / torch.linalg.vector_norm(R, dim=0))
    return float(2 * s.log().sum()) if s[-1] > DEPENDENT else -torch.inf


# How strongly the class probabilities answer to the input: ‖∂softmax/∂input‖₂² of each sample (section 7.1).


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
