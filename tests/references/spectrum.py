"""The eigenbasis of a Hessian made unique, and where its sharp directions end: the rules written out once more."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ONE_SPACE = 1e-10  # eigenvalues closer than this, relative to the largest, belong to one eigenspace
NOTHING = 1e-13  # a spread below this share of the largest is none


def eigenbasis(H: Tensor, g: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [N] and eigenvectors as columns [N, N] in the order of σ_g, largest first; without any, of σ_w.

    Inside an eigenspace the vectors are the principal axes of g [K, N]; where g does not spread, those of dw [K, N].
    """
    values, E = torch.linalg.eigh(H)
    top = float(values.abs().max())
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and float(values[end] - values[end - 1]) <= ONE_SPACE * top:
            continue
        if end - start > 1:
            E[:, start:end] = _turned(E[:, start:end], g, dw)
        start = end
    sigma_g, sigma_w = (part.std(0, correction=0) for part in (g @ E, dw @ E))
    still = 1e-12 * float(g.var(0, correction=0).sum()) ** 0.5
    places = sorted(range(len(values)), key=lambda n: (-sigma_g[n], 0.0) if sigma_g[n] > still else (0.0, -sigma_w[n]))
    return values[places], E[:, places]


def _turned(block: Tensor, g: Tensor, dw: Tensor) -> Tensor:
    axes, spread = _axes(g @ block)
    block = block @ axes
    rest = block[:, spread:]
    return torch.cat([block[:, :spread], rest @ _axes(dw @ rest)[0]], 1) if rest.shape[1] else block


def _axes(samples: Tensor) -> tuple[Tensor, int]:
    """Principal axes of samples [K, m] as columns, widest first, and how many of them have any spread."""
    _, s, V = torch.linalg.svd(samples - samples.mean(0), full_matrices=True)
    return V.T, int((s > NOTHING * max(samples.shape) * s.max()).sum()) if len(s) else 0


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
