"""The eigenbasis of a Hessian made unique, and where its sharp directions end: the rules written out once more."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ONE_SPACE = 1e-10  # eigenvalues closer than this, relative to the largest, belong to one eigenspace
FAINT = 1e-10  # a spread of g below this share of the whole does not tell directions apart


def eigenbasis(H: Tensor, g: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [N] and eigenvectors as columns [N, N] in the order of σ_g, largest first; without any, of σ_w.

    Inside an eigenspace the vectors are the principal axes of g [K, N]; where g does not spread, those of dw [K, N].
    """
    values, E = torch.linalg.eigh(H)
    top, whole = float(values.abs().max()), float(g.var(0, correction=0).sum()) ** 0.5
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and float(values[end] - values[end - 1]) <= ONE_SPACE * top:
            continue
        if end - start > 1:
            E[:, start:end] = _turned(E[:, start:end], g, dw, FAINT * whole)
        start = end
    sigma_g, sigma_w = (part.std(0, correction=0) for part in (g @ E, dw @ E))
    seen = [float(s) if s > 1e-12 * whole else 0.0 for s in sigma_g]
    places = sorted(range(len(values)), key=lambda n: (-seen[n], -float(sigma_w[n])))
    return values[places], E[:, places]


def _turned(block: Tensor, g: Tensor, dw: Tensor, faint: float) -> Tensor:
    axes, deviations = _axes(g @ block)
    block, spread = block @ axes, sum(deviation > faint for deviation in deviations)
    rest = block[:, spread:]
    return torch.cat([block[:, :spread], rest @ _axes(dw @ rest)[0]], 1) if rest.shape[1] else block


def _axes(samples: Tensor) -> tuple[Tensor, list[float]]:
    """Principal axes of samples [K, m] as columns, widest first, and the deviations along them."""
    _, s, V = torch.linalg.svd(samples - samples.mean(0), full_matrices=True)
    return V.T, (s / len(samples) ** 0.5).tolist()


def elbow(sigma: list[float]) -> int:
    """n_s: the steepest drop of σ among the n that hold 30–70 % of σ², or the n that first holds half of it."""
    total, held, candidates, half = math.fsum(s * s for s in sigma), 0.0, [], None
    for n, s in enumerate(sigma, 1):
        held += s * s / total
        if half is None and held >= 0.5 * (1 - 1e-12):
            half = n
        if 0.3 <= held <= 0.7 or half == n:
            candidates.append(n)
    assert half is not None
    drops = {n: sigma[n - 1] / sigma[n] if sigma[n] else math.inf for n in candidates if n < len(sigma)}
    best = max(drops, key=lambda n: drops[n], default=half)
    return best if drops.get(best, 0.0) >= 1.15 else half
