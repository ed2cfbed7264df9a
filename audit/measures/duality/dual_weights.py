"""The dual weights of a pair: the smallest change of W that does to x what exchanging x for x′ does.

One vector per sample:   ΔW = (W Δx) xᵀ / ‖x‖²          (Feng & Tu, Eq. 6),   Δx = x′ − x
T vectors, X [T, in]:    ΔW = (W ΔX)ᵀ (X⁺)ᵀ             the same as a least-squares problem; exact iff rank X = T

The patches of a convolution are such vectors; where there are more of them than a patch has numbers, ΔW does only
approximately what exchanging the sample does.

Both are Σ_t u_t p_tᵀ with u = W Δx and p the columns of the pseudo-inverse of X (x/‖x‖² for one vector), so that ΔW is
kept as its factors u [k, T, out] and p [k, T, in].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.maths.blocks import HELD, blocks
from audit.network.capture import Capture
from audit.network.hooks import hooked
from audit.network.layers import DenseLayer

ROUNDING = 1e-13  # a change of the layer's answer below this, relative to the answer's own scale, is rounding: ΔW = 0

Shift = Callable[[Tensor], Tensor]  # what a layer was given [n, T, in] → what is added to its answer [n, T, out]


@dataclass(frozen=True)
class Dual:
    """ΔW of k pairs, in factors."""

    u: Tensor  # [k, T, out]
    p: Tensor  # [k, T, in]
    alive: Tensor  # [k]  False where x = 0: no weight can change what the layer makes of it

    def squared_norm(self) -> Tensor:
        """‖ΔW‖² = Σ_tt′ (u_t·u_t′)(p_t·p_t′)  [k]."""
        if self.u.shape[1] == 1:
            return self.u.square().sum((1, 2)) * self.p.square().sum((1, 2))
        if self._smaller_formed:
            return torch.cat([(u.mT @ p).square().sum((1, 2)) for u, p in self._blocks(self._weights)])
        return ((self.u @ self.u.mT) * (self.p @ self.p.mT)).sum((1, 2)).clamp(min=0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Σ_k weights_k ΔW_k  [out, in]; weights [k]."""
        return (self.u * weights[:, None, None]).flatten(0, 1).T @ self.p.flatten(0, 1)

    def project(self, E: Tensor) -> Tensor:
        """ΔW_k·E_n = Σ_t u_tᵀ E_n p_t  [k, N]; E [N, out, in]. Whichever way has the smaller numbers in between."""
        N, out, into = E.shape
        by_weights = self.p.shape[1] > 1 or into < N
        step, numbers = (self._by_weights, self._weights) if by_weights else (self._by_factors, N * out)
        return torch.cat([step(u, p, E) for u, p in self._blocks(numbers)])

    @property
    def _weights(self) -> int:
        return self.u.shape[2] * self.p.shape[2]

    @property
    def _smaller_formed(self) -> bool:
        """Whether ΔW has fewer entries than a matrix between tokens, as in a convolution with many patches."""
        return self._weights < self.u.shape[1] ** 2

    def _blocks(self, numbers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Factors of a few pairs at a time, where each pair takes that many numbers."""
        return ((self.u[part], self.p[part]) for part in blocks(len(self.u), numbers, HELD))

    @staticmethod
    def _by_weights(u: Tensor, p: Tensor, E: Tensor) -> Tensor:
        return (u.mT @ p).flatten(1) @ E.flatten(1).T

    @staticmethod
    def _by_factors(u: Tensor, p: Tensor, E: Tensor) -> Tensor:
        N, out, into = E.shape
        E_p = (p.flatten(0, 1) @ E.reshape(N * out, into).T).reshape(*p.shape[:2], N, out)
        return torch.einsum("kto,ktno->kn", u, E_p)

    def shift(self, rows: int) -> Shift:
        """What ΔW_k adds to the answer for sample k; in a batch of `rows`, those beyond the pairs are left alone."""
        u, p = (nn.functional.pad(part, (0, 0, 0, 0, 0, rows - len(part))) for part in (self.u, self.p))
        if self._smaller_formed:
            dW = u.mT @ p
            return lambda x: x.to(dW) @ dW.mT
        return lambda x: (x.to(p) @ p.mT) @ u


def dual_weights(W: Tensor, x: Tensor, x_test: Tensor) -> Dual:
    """ΔW of each pair; x [k, T, in] the train partners, x_test [k, T, in], float64."""
    u = (x_test - x) @ W.T
    scale = W.norm() * (x.flatten(1).norm(dim=1) + x_test.flatten(1).norm(dim=1))
    u = torch.where((u.flatten(1).norm(dim=1) <= ROUNDING * scale)[:, None, None], torch.zeros_like(u), u)
    alive = (x != 0).flatten(1).any(1)
    if x.shape[1] == 1:
        square = x.square().sum(2, keepdim=True)
        p = torch.where(square > 0, x / torch.where(square > 0, square, torch.ones_like(square)), torch.zeros_like(x))
    else:
        p = _pseudo_inverse(x).mT
    return Dual(u, p, alive)


def _pseudo_inverse(x: Tensor) -> Tensor:
    """X⁺ [k, in, T]; long matrices through the triangle of their QR, which has their singular values."""
    tall = x if x.shape[1] >= x.shape[2] else x.mT
    rounding = len(tall[0]) * torch.finfo(x.dtype).eps
    Q, R = torch.linalg.qr(tall)
    inverse: Tensor = torch.linalg.pinv(R, rtol=rounding) @ Q.mT
    return inverse if x.shape[1] >= x.shape[2] else inverse.mT


@torch.no_grad()
def shifted_losses(capture: Capture, layer: DenseLayer, shift: Shift, x: Tensor, y: Tensor) -> Tensor:
    """Losses [n] of a chunk when every use of the layer's weights answers W x + b + shift(x)."""

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        n = capture.fixed_batch or len(x)
        return z + as_raw(shift(layer.arrange_input(inputs[0], n)), z, layer)

    with hooked(capture.network, dict.fromkeys(uses_of(capture.network, layer), hook)):
        return next(capture.forward(x, y)).loss


@torch.no_grad()
def loss_with(capture: Capture, layer: DenseLayer, dW: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Loss of one sample with the layer's weights really changed by dW [out, in], wherever they are used."""
    weight = capture.network.get_submodule(layer.module).weight
    assert isinstance(weight, Tensor)
    own = weight.clone()
    try:
        weight.add_(dW.reshape(weight.shape))
        return next(capture.forward(x, y)).loss[0]
    finally:
        weight.copy_(own)


def uses_of(network: nn.Module, layer: DenseLayer) -> list[str]:
    """Paths of the linear modules that hold the layer's weight: its own, and those tied to it."""
    weight = network.get_submodule(layer.module).weight
    assert isinstance(weight, Tensor)
    tied = [
        path
        for path, module in network.named_modules()
        if isinstance(module, nn.Linear) and module.weight.data_ptr() == weight.data_ptr() and path != layer.module
    ]
    return [layer.module, *tied]


def as_raw(values: Tensor, like: Tensor, layer: DenseLayer) -> Tensor:
    """Values [n, T, out] in the shape of the layer's raw answer: the way back from `DenseLayer.arrange`."""
    moved = like if layer.feature_axis == -1 else like.movedim(layer.feature_axis, -1)
    raw = values.to(like.dtype).reshape(moved.movedim(layer.batch_axis, 0).shape).movedim(0, layer.batch_axis)
    return raw if layer.feature_axis == -1 else raw.movedim(-1, layer.feature_axis)
