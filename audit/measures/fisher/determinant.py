"""Determinants of gradients whose Gram matrix has lost too many digits: from the gradients themselves.

A Gram matrix squares the spread of what it is made of. With rounding at 1e-16, an eigenvalue λ of the cosines is good
to 1e-16/λ; a singular value √λ of the gradients themselves, scaled to length 1, is good to 1e-16/√λ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from audit.maths.decompositions import svdvals
from audit.measures.fisher.gram import GradientSource, LogDeterminants

DEPENDENT = 1e-10  # a singular value of unit gradients below this is not good to 1e-6: it counts as zero


def settle(layers: Mapping[str, LogDeterminants], whole: LogDeterminants, source: GradientSource) -> None:
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
