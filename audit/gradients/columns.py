"""The gradients of a few samples themselves, some of their columns at a time: [columns, N′], one sample per column.

Whoever wants no more than lengths and angles may turn all gradients at once. Of a dense layer, δ xᵀ, both factors are
turned: into the space that the N′ vectors x span, and that of the N′ vectors δ, so that N′ × N′ numbers say it all.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

GATHERED = 1 << 20  # numbers gathered at once: 8 MB, which a processor's cache holds


def dense_columns(x: Tensor, delta: Tensor, weight: bool, bias: bool) -> Iterator[Tensor]:
    """Σ_t δ_t [x_t, 1]ᵀ, turned; x [N′, T, in], δ [N′, T, out]; `weight` and `bias` say which of the two count."""
    x = torch.cat([x] * weight + [torch.ones_like(x[:, :, :1])] * bias + [x[:, :, :0]], 2)
    if x.shape[1] == 1:
        x, delta = _turned(x[:, 0])[:, None], _turned(delta[:, 0])[:, None]
    for rows in torch.split(delta, max(1, _at_once(len(x)) // max(1, x.shape[2])), dim=2):
        yield torch.einsum("nto,nti->oin", rows, x).flatten(0, 1)


def formed_columns(G: Tensor) -> Iterator[Tensor]:
    """Of gradients that are formed already, G [N′, P]."""
    yield from torch.split(G.T, _at_once(len(G)))


def _at_once(count: int) -> int:
    """Columns in one block; no fewer than samples, or the triangle would cost more than the block."""
    return max(count, GATHERED // count)


def _turned(vectors: Tensor) -> Tensor:
    """Coordinates [N′, N′] of N′ vectors [N′, width] in an orthonormal basis of what they span, where that is fewer."""
    count, width = vectors.shape
    return torch.linalg.qr(vectors.T, mode="r").R.T if width > count else vectors
