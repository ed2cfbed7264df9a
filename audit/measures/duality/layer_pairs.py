"""One layer's pairs in numbers: dual weights, effective gradients, their totals, and whether the duality holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from audit.maths.blocks import HELD, row_blocks
from audit.measures.duality.basis import Vectors
from audit.measures.duality.pairs import Dual, PairChunk, Pairs, Shift, dual_weights
from audit.network import DenseLayer
from audit.network.capture import Capture
from audit.network.hooks import hooked

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}  # of the duality, relative to the largest loss if above 1
CANCELLED = 1e-13  # a variance below this share of its second moment is rounding


@dataclass(frozen=True)
class LayerPairs:
    """The pairs of one layer; vectors over all K pairs, dropped ones among them with alive = False."""

    alive: Tensor  # [K]
    gap: Tensor  # [K]  Δl_k
    squared_norm: Tensor  # [K]  ‖ΔW_k‖²
    mean_w: Tensor  # [out, in]
    mean_g: Tensor  # [out, in]
    error: Tensor  # [K]  |l(w*, x) − l(w, x′)|
    dual_residual: float
    tolerance: float
    used_elsewhere: bool  # whether the layer's weights act where no linear layer shows it

    @property
    def max_residual(self) -> float:
        """The largest error over the pairs in use."""
        return float(self.error[self.alive].max())

    @property
    def mean_residual(self) -> float:
        """The mean error over the pairs in use."""
        return float(self.error[self.alive].mean())

    @property
    def relative_residual(self) -> float | None:
        """The mean error over the mean |Δl|; None where no loss differs."""
        differs = float(self.gap[self.alive].abs().mean())
        return self.mean_residual / differs if differs > 0 else None

    @property
    def s(self) -> Tensor:
        """g_k = s_k ΔW_k with s = Δl/‖ΔW‖² (Eq. 7), 0 where ΔW = 0  [K]."""
        return torch.where(self.squared_norm > 0, self.gap / self.squared_norm.clamp(min=1e-300), 0.0)

    @property
    def mean_gap(self) -> float:
        """⟨Δl⟩ over the pairs in use."""
        return float(self.gap[self.alive].mean())

    @cached_property
    def mean_term(self) -> float:
        """μ_g·μ_w over all directions."""
        return _dot(self.mean_g, self.mean_w)

    @property
    def target_term(self) -> float:
        """What the pairs with ΔW = 0 add to ⟨Δl⟩: there only the targets differ, and no weight stands for that."""
        return float(torch.where(self.squared_norm > 0, 0.0, self.gap)[self.alive].mean())

    @property
    def second_moment_w(self) -> float:
        """⟨‖ΔW‖²⟩, the paper's Eq. 12."""
        return float(self.squared_norm[self.alive].mean())

    @cached_property
    def total_w(self) -> float:
        """T_w = ⟨‖ΔW‖²⟩ − ‖⟨ΔW⟩‖²."""
        return _variance(self.second_moment_w, self.mean_w)

    @cached_property
    def total_g(self) -> float:
        """T_g = ⟨Δl²/‖ΔW‖²⟩ − ‖⟨g⟩‖²."""
        second = (self.s * self.gap)[self.alive].mean()
        return _variance(float(second), self.mean_g)


class Duals:
    """The dual weights of all pairs at one layer, chunk by chunk, walked over as often as needed.

    A pseudo-inverse, or a product with a large W, costs more than the rest of a walk: then they are held if they fit.
    """

    def __init__(self, pairs: Pairs, layer: DenseLayer) -> None:
        self.pairs, self.layer = pairs, layer
        W = layer.weight(pairs.capture.network)
        self.W = W.double() if W.numel() <= HELD else W  # a large one stays as it is, and so do sums of its size

    @property
    def tolerance(self) -> float:
        """Of the equality, in the arithmetic of the pairs."""
        return TOLERANCE[next(self.pairs.capture.network.parameters()).dtype]

    def __iter__(self) -> Iterator[Dual]:
        return iter(self._all) if self._all is not None else (self._of(chunk) for chunk in self.pairs)

    def beside_pairs(self) -> Iterator[tuple[PairChunk, Dual]]:
        """Each chunk of pairs with its dual weights."""
        if self._all is None:
            return ((chunk, self._of(chunk)) for chunk in self.pairs)
        return zip(self.pairs, self._all, strict=True)

    def along(self, vectors: Vectors) -> Tensor:
        """ΔW_k·E_n of all pairs  [K, N]."""
        return torch.cat([vectors.along(dual) for dual in self])

    def project(self, E: Tensor) -> Tensor:
        """ΔW_k·E_n of all pairs  [K, N]; E [N, out, in]."""
        return torch.cat([dual.project(E) for dual in self])

    def on(self, *matrices: Tensor) -> Tensor:
        """ΔW_k·M of all pairs  [K, M], for matrices like W."""
        if self.W.numel() <= HELD:
            return self.project(torch.stack(matrices))
        return torch.stack([torch.cat([dual.inner(M) for dual in self]) for M in matrices], 1)

    @cached_property
    def _all(self) -> list[Dual] | None:
        """Those of a token-wise or a large layer, where they fit; None of others."""
        numbers = len(self.pairs) * self.layer.tokens * (self.layer.in_features + self.layer.out_features)
        held = (self.layer.tokens > 1 or self.W.numel() > HELD) and 8 * numbers <= self.pairs.room
        return [self._of(chunk) for chunk in self.pairs] if held else None

    def _of(self, chunk: PairChunk) -> Dual:
        x, x_test = (record.layers[self.layer.name].x.double() for record in (chunk.partner, chunk.test))
        return dual_weights(self.W, x, x_test)


def measure_pairs(duals: Duals, checked: int | None = None) -> LayerPairs:
    """Walks over the pairs once and really runs every partner with its dual weights, or about `checked` of them."""
    columns: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    worst, largest, elsewhere = 0.0, 0.0, False
    sum_w, sum_g = torch.zeros_like(duals.W), torch.zeros_like(duals.W)
    for chunk, dual in duals.beside_pairs():
        gap, squared = chunk.test.loss - chunk.partner.loss, dual.squared_norm()
        alive = dual.alive.double()
        effective = torch.where(squared > 0, alive * gap / squared.clamp(min=1e-300), 0.0)
        for rows in row_blocks(sum_w):
            sum_w[rows] += dual.weighted_sum(alive, rows, sum_w.dtype)
            sum_g[rows] += dual.weighted_sum(effective, rows, sum_g.dtype)
        error = torch.zeros_like(gap)
        if checked is None or chunk.positions.start < checked:
            if not elsewhere:
                dual_loss = _dual_losses(duals, chunk, dual)
                elsewhere = not columns and _used_elsewhere(duals, chunk, dual, dual_loss)
            if elsewhere:
                dual_loss = torch.stack([_really(duals, chunk, dual, k) for k in range(len(gap))])
            error = (dual_loss - chunk.test.loss).abs()
            worst = max(worst, _answer_error(chunk, duals.layer, dual))
        columns.append((dual.alive, gap, squared, error))
        largest = max(largest, float(chunk.test.loss.max()))
    alive, gap, squared, error = (torch.cat(column) for column in zip(*columns, strict=True))
    used = max(1, int(alive.sum()))
    return LayerPairs(
        *(alive, gap, squared, sum_w.div_(used), sum_g.div_(used), error, worst),
        tolerance=duals.tolerance * max(1.0, largest),
        used_elsewhere=elsewhere,
    )


def _dot(A: Tensor, B: Tensor) -> float:
    return sum(float((A[rows].double() * B[rows].double()).sum()) for rows in row_blocks(A))


def _dual_losses(duals: Duals, chunk: PairChunk, dual: Dual) -> Tensor:
    """l(w*, x) of each pair, by running x with the weights w* (and the test sample's own target)  [k]."""
    shift = dual.shift(duals.pairs.capture.fixed_batch or len(chunk.x))
    return shifted_losses(duals.pairs.capture, duals.layer, shift, chunk.x, chunk.test.y)


def _used_elsewhere(duals: Duals, chunk: PairChunk, dual: Dual, dual_loss: Tensor) -> bool:
    """Whether it matters to change the weights themselves, not only what linear layers make of them.

    A weight may be used where no layer shows it: by an embedding, or transposed. Known from who holds it, or seen on
    the pair with the largest ΔW.
    """
    if len(uses_of(duals.pairs.capture.network, duals.layer)) < 1 + len(duals.layer.tied_with):
        return True
    k = int(dual.squared_norm().argmax())
    shifted = float(dual_loss[k])
    return not abs(float(_really(duals, chunk, dual, k)) - shifted) <= duals.tolerance * max(1.0, shifted)


def _really(duals: Duals, chunk: PairChunk, dual: Dual, k: int) -> Tensor:
    """l(w*, x) of pair k, with the weights themselves changed."""
    one = slice(k, k + 1)
    return loss_with(duals.pairs.capture, duals.layer, dual.one(k), chunk.x[one], chunk.test.y[one])


def _answer_error(chunk: PairChunk, layer: DenseLayer, dual: Dual) -> float:
    """Largest ‖W* X − W X′‖ over ‖W X′ − W X‖ among the pairs in use."""
    x = chunk.partner.layers[layer.name].x.double()
    wanted = dual.u.flatten(1).norm(dim=1)
    missed = (dual.shift(len(x))(x) - dual.u).flatten(1).norm(dim=1)
    counts = dual.alive & (wanted > 0)
    return float((missed[counts] / wanted[counts]).max()) if bool(counts.any()) else 0.0


def _variance(second_moment: float, mean: Tensor) -> float:
    variance = second_moment - _dot(mean, mean)
    rounding = max(CANCELLED, 8 * torch.finfo(mean.dtype).eps)
    return variance if variance > rounding * second_moment else 0.0


# The network really run with dual weights: added to what the layer answers, or to the weights themselves.


@torch.no_grad()
def shifted_losses(capture: Capture, layer: DenseLayer, shift: Shift, x: Tensor, y: Tensor) -> Tensor:
    """Losses [n] of a chunk when every use of the layer's weights answers W x + b + shift(x)."""

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        n = capture.fixed_batch or len(x)
        return z + as_raw(shift(layer.arrange_input(inputs[0], n)), z, layer)

    with hooked(capture.network, dict.fromkeys(uses_of(capture.network, layer), hook)):
        return next(capture.forward(x, y)).loss


@torch.no_grad()
def loss_with(capture: Capture, layer: DenseLayer, dual: Dual, x: Tensor, y: Tensor) -> Tensor:
    """Loss of one sample with the layer's weights really changed by its ΔW, wherever they are used."""
    weight = capture.network.get_submodule(layer.module).weight
    assert isinstance(weight, Tensor)
    own = weight.clone()
    try:
        for rows in row_blocks(layer.weight(capture.network)):
            dW = dual.weighted_sum(torch.ones(1, dtype=dual.u.dtype, device=dual.u.device), rows)
            weight[rows] += dW.reshape(weight[rows].shape)
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
