"""The curvature Λ of the loss in the scores, sample by sample, as few directions with their sizes.

Λ = Lᵀ L. Its own eigen-directions carry its trace in the fewest columns. With many classes a sample's probability lies
in few of them: then the rows of L that belong to these are taken, and the eigen-directions of what these span. What is
left out is positive semidefinite.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.decompositions import eigh
from audit.network.loss import BinaryCrossEntropy, CrossEntropy, Loss, TokenCrossEntropy

MOST_CLASSES = 32  # of a sample, whose rows of L are looked at


@dataclass(frozen=True)
class ScoreCurvature:
    """Leading directions of each sample's Λ."""

    sizes: Tensor  # [n, r]  eigenvalues, descending
    roots: Tensor  # [n, r, C]  √size times the direction: Σ_j root_j root_jᵀ is Λ, or less
    trace: Tensor  # [n]  tr Λ, all of it


def score_curvature(loss: Loss, f: Tensor, y: Tensor, most: int) -> ScoreCurvature:
    """At most `most` directions of each sample; f [n, C], float64, with labels y.

    >>> f, y = torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    >>> found = score_curvature(CrossEntropy(), f, y, 2)
    >>> round(float(found.sizes[0, 0]), 6), round(float(found.trace[0]), 6)
    (0.5, 0.5)
    """
    n, C = f.shape
    if isinstance(loss, CrossEntropy):
        return _of_classes(f, min(most, C - 1))
    if isinstance(loss, TokenCrossEntropy):
        return _of_positions(loss, f, y, most)
    if isinstance(loss, BinaryCrossEntropy):
        size = torch.sigmoid(f) * torch.sigmoid(-f)
        return ScoreCurvature(size, size.sqrt()[:, :, None], size[:, 0])
    units = torch.eye(C, dtype=f.dtype, device=f.device)[:most].expand(n, -1, -1)
    return ScoreCurvature(f.new_ones(n, len(units[0])), units.clone(), f.new_full((n,), float(C)))


def _of_positions(loss: TokenCrossEntropy, f: Tensor, y: Tensor, most: int) -> ScoreCurvature:
    """The largest of all positions' directions: Λ has a block w_t Λ_t for each position and nothing between them."""
    n, C, w = len(f), loss.classes, loss.weights(y)  # [n, T]
    found = _of_classes(f.reshape(-1, C), min(most, C - 1))
    sizes = w[:, :, None] * found.sizes.reshape(*w.shape, -1)  # [n, T, r]
    kept = torch.topk(sizes.flatten(1), min(most, sizes[0].numel()), dim=1)
    position = kept.indices // sizes.shape[2]
    root = found.roots.reshape(n, -1, C).gather(1, kept.indices[:, :, None].expand(-1, -1, C))
    roots = f.new_zeros(*position.shape, w.shape[1], C)
    where = position[:, :, None, None].expand(-1, -1, 1, C)
    roots.scatter_(2, where, (w.gather(1, position).sqrt()[:, :, None] * root)[:, :, None])
    return ScoreCurvature(kept.values, roots.flatten(2), (w * found.trace.reshape(w.shape)).sum(1))


def _of_classes(f: Tensor, most: int) -> ScoreCurvature:
    p, top = f.softmax(1), f.argmax(1, keepdim=True)
    others = p.scatter(1, top, 0.0).sum(1, keepdim=True)  # 1 − p_top, without cancellation
    trace = (p * (1 - p).scatter(1, top, others)).sum(1)
    kept = torch.topk(p, min(MOST_CLASSES, f.shape[1]), dim=1).indices  # [n, r]
    L = -p[:, None, :].expand(-1, kept.shape[1], -1).clone()
    own = (1 - p).scatter(1, top, others).gather(1, kept)
    L.scatter_(2, kept[:, :, None], own[:, :, None])
    L *= p.gather(1, kept).sqrt()[:, :, None]  # rows √p_c (e_c − p) of the root  [n, r, C]
    values, vectors = (part.flip(-1) for part in eigh(L @ L.mT))
    r = min(most, values.shape[1])
    roots = vectors[:, :, :r].mT @ L  # [n, r, C], orthogonal, of squared length `values`
    return ScoreCurvature(values[:, :r].clamp(min=0), roots, trace)
