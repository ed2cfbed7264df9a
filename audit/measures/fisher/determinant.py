"""ln det of Gram matrices of gradients; from the gradients themselves where a Gram matrix has lost too many digits.

A Gram matrix squares the spread of what it is made of. With rounding at 1e-16, an eigenvalue λ of the cosines is good
to 1e-16/λ; a singular value √λ of the gradients themselves, scaled to length 1, is good to 1e-16/√λ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.decompositions import eigvalsh, svdvals
from audit.measures.fisher.gram import GradientSource

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
