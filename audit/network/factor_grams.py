"""Gram matrices of gradients that are sums of outer products, from their factors, in bounded memory.

The gradient of one sample's loss in W is Σ_t δ_t x_tᵀ over its tokens t (the patches of a convolution, the places where
an embedding is looked up). The inner product of two samples' gradients is Σ_tt′ (δ_t·δ_t′)(x_t·x_t′): quicker for few
tokens, and nothing is formed. For many, the gradients are formed, a few rows of W at a time. Sums in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.maths.blocks import blocks
from audit.network.hooks import CONVOLUTIONS
from audit.network.patches import Patches

SHORT = 1 << 14  # columns of gradients that are brought to double precision at once
GROUPS = 4  # of samples: a Gram matrix is symmetric, so that 10 of their 16 products are enough

Vectors = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""What a layer was given and the signals at its answer, of some samples → x [n, T, in] and δ [n, T, out]."""


@dataclass(frozen=True)
class Factors:
    """What is kept of a layer for each sample of a pool."""

    x: Tensor  # [N, …]
    signal: Tensor  # [N, …]
    vectors: Vectors
    weight: bool = True  # whether W counts
    bias: bool = False  # whether b counts
    looked_up: bool = False  # an embedding: x are row numbers [n, T, 1], alike or not

    def gram(self, numbers: int) -> Tensor:
        """[N, N], with about `numbers` numbers at a time on the way."""
        x, delta = self._of(slice(0, 1))
        T, wide, out = x.shape[1], x.shape[2], delta.shape[2]
        if self.looked_up or not self.weight or T == 1 or T * T * (wide + out) < wide * out:
            return self._by_products(max(1, int(numbers**0.5) // T))
        return self._by_rows(numbers)

    def _of(self, rows: slice) -> tuple[Tensor, Tensor]:
        return self.vectors(self.x[rows], self.signal[rows])

    def _by_products(self, samples: int) -> Tensor:
        """Σ_tt′ (δ_t·δ_t′)(x_t·x_t′ + 1), so many samples at a time."""
        N = len(self.x)
        K = torch.zeros(N, N, dtype=torch.float64, device=self.signal.device)
        parts = list(blocks(N, 1, samples))
        for place, one in enumerate(parts):
            x, delta = self._of(one)
            for other in parts[place:]:
                x_, delta_ = self._of(other)
                found = self._alike(x, x_) * _products(delta, delta_)
                found = found.reshape(len(x), x.shape[1], len(x_), -1).sum((1, 3))
                K[one, other], K[other, one] = found, found.T
        return K

    def _alike(self, x: Tensor, x_: Tensor) -> Tensor | float:
        """x_t·x_t′ + 1 [n·T, n′·T], as far as W and b count."""
        if self.looked_up:
            return (x.reshape(-1, 1) == x_.reshape(1, -1)).double()
        return (_products(x, x_) if self.weight else 0.0) + float(self.bias)

    def _by_rows(self, numbers: int) -> Tensor:
        """Through the gradients, a few rows of W at a time."""
        x, delta = self._of(slice(0, 1))
        N, T, wide, out = len(self.x), x.shape[1], x.shape[2], delta.shape[2]
        K = torch.zeros(N, N, dtype=torch.float64, device=delta.device)
        samples = list(blocks(N, T * (wide + out), numbers))
        if self.bias:
            K += gram(torch.cat([self._of(some)[1].sum(1) for some in samples]))
        for rows in blocks(out, N * wide, numbers):
            G = torch.empty(N, rows.stop - rows.start, wide, dtype=delta.dtype, device=delta.device)
            for some in samples:
                x, delta = self._of(some)
                torch.bmm(delta[:, :, rows].mT, x, out=G[some])
            K += gram(G.flatten(1))
        return K


def _products(a: Tensor, b: Tensor) -> Tensor:
    """All inner products [n·T, n′·T] of a [n, T, w] and b [n′, T, w], float64."""
    return a.double().flatten(0, 1) @ b.double().flatten(0, 1).T


def gram(G: Tensor, H: Tensor | None = None) -> Tensor:
    """G Gᵀ [N, N], or G Hᵀ, float64; G [N, P] in single or double precision."""
    if H is not None:
        return torch.stack([a.double() @ b.double().T for a, b in _columns(G, H)]).sum(0)
    N = len(G)
    K = torch.zeros(N, N, dtype=torch.float64, device=G.device)
    groups = list(blocks(N, 1, -(-N // GROUPS)))
    for part, _ in _columns(G, G):
        wide = part.double()
        for one in groups:
            K[one, one.start :] += wide[one] @ wide[one.start :].T
    return K.triu() + K.triu(1).T


def _columns(G: Tensor, H: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(G, SHORT, 1), torch.split(H, SHORT, 1), strict=True)


def module_factors(
    module: nn.Module, names: Collection[str], space: tuple[int, ...]
) -> Callable[[Tensor, Tensor], Factors] | None:
    """How factors of a convolution or an embedding are kept, with those of its parameters in `names` that count.

    `space`: the size of the maps that a convolution is given. None for modules whose gradients have no such factors.
    """
    weight, bias = "weight" in names, "bias" in names
    if isinstance(module, CONVOLUTIONS) and module.groups == 1:
        patches = Patches.of(module, space)

        def cut(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            return patches.columns(x).mT, g.flatten(2).mT

        return lambda x, g: Factors(x, g, cut, weight, bias)
    if isinstance(module, nn.Embedding) and weight:
        rows = len(module.weight)

        def look(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            return x.remainder(rows).reshape(len(x), -1, 1), g.reshape(len(x), -1, g.shape[-1])

        return lambda x, g: Factors(x, g, look, looked_up=True)
    return None
