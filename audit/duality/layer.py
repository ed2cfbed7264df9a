"""One layer's pairs in numbers: dual weights, effective gradients, their totals, and whether the duality holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.duality.dual import Dual, dual_weights, shifted_losses
from audit.duality.pairs import PairChunk, Pairs
from audit.layers import DenseLayer

TOLERANCE = 1e-9  # of the duality, relative to the largest loss where that is above 1
CANCELLED = 1e-13  # a variance below this share of its second moment is rounding


@dataclass(frozen=True)
class LayerPairs:
    """The pairs of one layer; vectors over all K pairs, dropped ones among them with alive = False."""

    alive: Tensor  # [K]
    gap: Tensor  # [K]  Δl_k
    squared_norm: Tensor  # [K]  ‖ΔW_k‖²
    mean_w: Tensor  # [out, in]
    mean_g: Tensor  # [out, in]
    max_residual: float
    dual_residual: float
    tolerance: float

    @property
    def s(self) -> Tensor:
        """g_k = s_k ΔW_k with s = Δl/‖ΔW‖² (Eq. 7), 0 where ΔW = 0  [K]."""
        return torch.where(self.squared_norm > 0, self.gap / self.squared_norm.clamp(min=1e-300), 0.0)

    @property
    def mean_gap(self) -> float:
        """⟨Δl⟩ over the pairs in use."""
        return float(self.gap[self.alive].mean())

    @property
    def mean_term(self) -> float:
        """μ_g·μ_w over all directions."""
        return float((self.mean_g * self.mean_w).sum())

    @property
    def second_moment_w(self) -> float:
        """⟨‖ΔW‖²⟩, the paper's Eq. 12."""
        return float(self.squared_norm[self.alive].mean())

    @property
    def total_w(self) -> float:
        """T_w = ⟨‖ΔW‖²⟩ − ‖⟨ΔW⟩‖²."""
        return _variance(self.second_moment_w, float(self.mean_w.square().sum()))

    @property
    def total_g(self) -> float:
        """T_g = ⟨Δl²/‖ΔW‖²⟩ − ‖⟨g⟩‖²."""
        second = (self.s * self.gap)[self.alive].mean()
        return _variance(float(second), float(self.mean_g.square().sum()))


def measure_pairs(pairs: Pairs, layer: DenseLayer, W: Tensor) -> LayerPairs:
    """Walks over the pairs once and really runs every partner with its dual weights."""
    columns, worst, largest = [], 0.0, 0.0
    sum_w, sum_g = torch.zeros_like(W), torch.zeros_like(W)
    for chunk, dual in duals(pairs, layer, W):
        gap, squared = chunk.test.loss - chunk.partner.loss, dual.squared_norm()
        alive = dual.alive.double()
        sum_w += dual.weighted_sum(alive)
        sum_g += dual.weighted_sum(torch.where(squared > 0, alive * gap / squared.clamp(min=1e-300), 0.0))
        columns.append((dual.alive, gap, squared, _duality_error(pairs, layer, chunk, dual)))
        worst = max(worst, _answer_error(W, chunk, layer, dual))
        largest = max(largest, float(chunk.test.loss.max()))
    alive, gap, squared, error = (torch.cat(column) for column in zip(*columns, strict=True))
    used = max(1, int(alive.sum()))
    residual = float(error[alive].max()) if bool(alive.any()) else 0.0
    return LayerPairs(
        alive, gap, squared, sum_w / used, sum_g / used, residual, worst, TOLERANCE * max(1.0, largest)
    )


def project(pairs: Pairs, layer: DenseLayer, W: Tensor, E: Tensor) -> Tensor:
    """ΔW_k·E_n of all pairs  [K, N]; E [N, out, in]."""
    return torch.cat([dual.project(E) for _, dual in duals(pairs, layer, W)])


def duals(pairs: Pairs, layer: DenseLayer, W: Tensor) -> Iterator[tuple[PairChunk, Dual]]:
    """The dual weights of the pairs, chunk by chunk."""
    for chunk in pairs:
        x, x_test = (record.layers[layer.name].x.double() for record in (chunk.partner, chunk.test))
        yield chunk, dual_weights(W, x, x_test)


def _duality_error(pairs: Pairs, layer: DenseLayer, chunk: PairChunk, dual: Dual) -> Tensor:
    """|l(w*, x) − l(w, x′)| of each pair, by running x with the weights w* (and the test sample's own target)  [k]."""
    shift = dual.shift(pairs.capture.fixed_batch or len(chunk.x))
    return (shifted_losses(pairs.capture, layer, shift, chunk.x, chunk.test.y) - chunk.test.loss).abs()


def _answer_error(W: Tensor, chunk: PairChunk, layer: DenseLayer, dual: Dual) -> float:
    """Largest ‖W* X − W X′‖ over ‖W X′ − W X‖ among the pairs in use."""
    x = chunk.partner.layers[layer.name].x.double()
    wanted = dual.u.flatten(1).norm(dim=1)
    missed = (dual.shift(len(x))(x) - dual.u).flatten(1).norm(dim=1)
    counts = dual.alive & (wanted > 0)
    return float((missed[counts] / wanted[counts]).max()) if bool(counts.any()) else 0.0


def _variance(second_moment: float, squared_mean: float) -> float:
    variance = second_moment - squared_mean
    return variance if variance > CANCELLED * second_moment else 0.0
