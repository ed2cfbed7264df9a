"""Gram matrices of per-sample loss gradients, never forming the gradient of a dense layer.

The gradient of one sample's loss with respect to W is δ xᵀ, so the inner product of two samples' gradients is
(δ_i·δ_j)(x_i·x_j), and with the bias (δ_i·δ_j)(x_i·x_j + 1). Only parameters outside the dense layers, and dense layers
over tokens (among them the patches of a convolution), have their gradients formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.blocks import CACHED_GATHER, blocks
from audit.measures.contract import Audit
from audit.network.loss import Loss
from audit.network.parameter_gradients import closed_parameters, other_parameters
from audit.network.record import Record

LOGIT_SCALE = 0.04  # section 7.2.3


def draw_subsets(n: int, size: int, count: int, seed: int) -> NDArray[np.int64]:
    """[T, N′] positions of distinct train samples; all of them, once, where there are no more than one subset needs."""
    if n <= size:
        return np.arange(n, dtype=np.int64)[None]
    rng = np.random.default_rng([seed, n, size])
    return np.stack([np.sort(rng.choice(n, size, replace=False)) for _ in range(count)]).astype(np.int64)


def normalized_gradient(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    """∂l/∂f [n, C] where the loss sees f/(0.04 ‖f‖), the derivative of the norm included."""
    norm = f.norm(dim=1, keepdim=True).clamp(min=1e-300)
    g, unit = loss.gradient(f / (LOGIT_SCALE * norm), y), f / norm
    gradient: Tensor = (g - unit * (unit * g).sum(1, keepdim=True)) / (LOGIT_SCALE * norm)
    return gradient


def divides_logits(audit: Audit) -> bool:
    """Whether the logits are divided by their length first: those of a sample with one class."""
    return audit.settings.normalized_logits and audit.loss.class_per_sample


def dense_grams(x: Tensor, delta: Tensor, weight: bool, bias: bool, subsets: Tensor) -> Tensor:
    """[T, N′, N′] for subsets [T, N′] of sample positions; x [n, T, in], δ [n, T, out].

    `weight` and `bias` say which of the two count: not one that is shared with another layer.
    """
    width = subsets.shape[1] * (x[0].numel() + delta[0].numel())
    product = _vector_grams if x.shape[1] == 1 else _token_grams
    groups = (subsets[part] for part in blocks(len(subsets), width, CACHED_GATHER))
    return torch.cat([product(x[index], delta[index], weight, bias) for index in groups])


def _vector_grams(x: Tensor, delta: Tensor, weight: bool, bias: bool) -> Tensor:
    """(δ_i·δ_j)(x_i·x_j + 1); x [G, N′, 1, in]."""
    x, delta = x[:, :, 0], delta[:, :, 0]
    return (delta @ delta.mT) * ((x @ x.mT if weight else 0.0) + float(bias))


def _token_grams(x: Tensor, delta: Tensor, weight: bool, bias: bool) -> Tensor:
    """Σ_{tt′} (δ_it·δ_jt′)(x_it·x_jt′ + 1), through G_i = Σ_t δ_it x_itᵀ, a few of its rows at a time."""
    summed = delta.sum(2)
    K = summed @ summed.mT * float(bias)
    if weight:
        for some in blocks(delta.shape[3], x.shape[0] * x.shape[1] * x.shape[3], CACHED_GATHER):
            G = torch.einsum("snto,snti->snoi", delta[..., some], x).flatten(2)
            K = K + G @ G.mT
    return K


def summed_gradients(x: Tensor, delta: Tensor, weight: bool, bias: bool) -> Tensor:
    """Σ_t δ_t x_tᵀ and Σ_t δ_t of each sample, as far as they count  [n, P]."""
    parts = [(delta.mT @ x).flatten(1)] * weight + [delta.sum(1)] * bias
    return torch.cat(parts, 1)


def formed_grams(G: Tensor, subsets: Tensor) -> Tensor:
    """[T, N′, N′] of gradients G [n, P]; long ones are gathered in the same memory again and again."""
    (T, size), P = subsets.shape, G.shape[1]
    if size * P <= CACHED_GATHER:
        return torch.cat(
            [G[index] @ G[index].mT for index in torch.split(subsets, CACHED_GATHER // (size * max(1, P)))]
        )
    K, gathered = G.new_empty(T, size, size), G.new_empty(size, P)
    for found, subset in zip(K, subsets, strict=True):
        torch.index_select(G, 0, subset, out=gathered)
        torch.mm(gathered, gathered.T, out=found)
    return K


Grams = dict[str, Tensor]  # by layer name, and REST for everything outside the dense layers: [T, N′, N′]
REST = ""


def parameter_counts(audit: Audit) -> dict[str, int]:
    """How many parameters each dense layer holds alone, and how many the `REST` has, where there are any."""
    counts = {}
    for layer in audit.layers:
        weight, bias = closed_parameters(audit.network, layer)
        counts[layer.name] = weight * layer.in_features * layer.out_features + bias * layer.out_features
    rest = sum(audit.network.get_parameter(name).numel() for name in other_parameters(audit.network, audit.layers))
    return counts | ({REST: rest} if rest else {})


class GradientSource:
    """The loss gradients of the drawn train samples.

    They are taken from the records as these pass by and kept, where they fit into memory; otherwise every subset is run
    through the network again at the end.
    """

    def __init__(self, audit: Audit, subsets: NDArray[np.int64], cotangent: Callable[[Record], Tensor]) -> None:
        self.audit, self.subsets, self._cotangent = audit, subsets, cotangent
        self._rest = other_parameters(audit.network, audit.layers)
        self._owned = {layer.name: closed_parameters(audit.network, layer) for layer in audit.layers}
        self.sizes = parameter_counts(audit)
        factors = {layer.name: layer.tokens * (layer.in_features + layer.out_features) for layer in audit.layers}
        self._summed = {name for name, size in factors.items() if 0 < self.sizes[name] < size}  # G_i is smaller
        self._pool = np.unique(subsets)
        width = sum(self.sizes[name] if name in self._summed else size for name, size in factors.items())
        needed = 8 * len(self._pool) * (width + self.sizes.get(REST, 0))
        self._keeps = needed <= audit.train.room // 2
        self._kept: list[_Gradients] = []

    def see(self, record: Record) -> None:
        """Keeps what the drawn samples of this record contribute."""
        if self._keeps:
            last = record.start + len(record.f)
            drawn = self._pool[(self._pool >= record.start) & (self._pool < last)] - record.start
            self._kept.append(self._gradients(record, torch.from_numpy(drawn).to(record.f.device)))

    def grams(self) -> Grams:
        """Gram matrices over the subsets, by layer."""
        if self._keeps:
            place = np.searchsorted(self._pool, self.subsets)
            return self._of(self._kept, torch.from_numpy(place))
        one_subset = torch.arange(self.subsets.shape[1])[None]
        each = [self._of(self._again(subset), one_subset) for subset in self.subsets]
        return {name: torch.cat([grams[name] for grams in each]) for name in self.sizes}

    def repeats(self, t: int) -> bool:
        """Whether some sample of subset t, its label included, is there twice."""
        x, y = (values[self.subsets[t]].cpu().numpy() for values in (self.audit.train.x, self.audit.train.y))
        return len({(x_i.tobytes(), y_i.tobytes()) for x_i, y_i in zip(x, y, strict=True)}) < len(x)

    def columns(self, t: int) -> dict[str, Iterator[Tensor]]:
        """The gradients of subset t themselves, by layer, in blocks [columns, N′]."""
        parts = self._rows_of(t) if self._keeps else self._again(self.subsets[t])
        found = {}
        for name in self.sizes:
            if name in self._summed or name == REST:
                found[name] = formed_columns(torch.cat([part.formed[name] for part in parts]))
            else:
                x, delta = (torch.cat([part.dense[name][which] for part in parts]) for which in (0, 1))
                found[name] = dense_columns(x, delta, *self._owned[name])
        return found

    def _rows_of(self, t: int) -> list[_Gradients]:
        """What is kept of subset t."""
        place, first, found = torch.from_numpy(np.searchsorted(self._pool, self.subsets[t])), 0, []
        for part in self._kept:
            rows = place[(place >= first) & (place < first + len(part))] - first
            found.append(part.of(rows))
            first += len(part)
        return found

    def _again(self, subset: NDArray[np.int64]) -> list[_Gradients]:
        train = self.audit.train
        records = self.audit.capture.full(train.x[subset], train.y[subset])
        return [self._gradients(record, torch.arange(len(record.f), device=record.f.device)) for record in records]

    def _gradients(self, record: Record, rows: Tensor) -> _Gradients:
        """The gradients of the samples `rows` of a record, in factors or formed."""
        cotangent = self._cotangent(record)
        g, own = cotangent[rows], cotangent is record.gradient  # of the loss itself, the record holds δ = Jᵀ ∂l/∂f
        dense, formed = {}, {}
        for name, layer in record.layers.items():
            x = layer.x[rows].double()
            delta = layer.delta[rows] if own else torch.einsum("ncto,nc->nto", layer.J[rows].double(), g)
            if name in self._summed:
                formed[name] = summed_gradients(x, delta, *self._owned[name])
            else:
                dense[name] = (x, delta)
        if self._rest:
            assert record.others is not None
            others = record.others.loss_gradients(rows, g) if own else record.others.gradients(rows, g)
            formed[REST] = torch.cat([others[name].flatten(1).double() for name in self._rest], 1)
        return _Gradients(dense, formed)

    def _of(self, kept: list[_Gradients], subsets: Tensor) -> Grams:
        count, size = sum(map(len, kept)), subsets.shape[1]
        if 2 * count**2 > subsets.numel() * size:
            return self._among(kept, subsets)
        everyone = self._among(kept, torch.arange(count)[None])  # few samples, of which the subsets share many
        return {name: K[0][subsets[:, :, None], subsets[:, None, :]] for name, K in everyone.items()}

    def _among(self, kept: list[_Gradients], subsets: Tensor) -> Grams:
        grams = {}
        for name in self.sizes:
            if name in self._summed or name == REST:
                G = torch.cat([part.formed[name] for part in kept])
                grams[name] = formed_grams(G, subsets.to(G.device))
            else:
                x, delta = (torch.cat([part.dense[name][which] for part in kept]) for which in (0, 1))
                grams[name] = dense_grams(x, delta, *self._owned[name], subsets.to(x.device))
        return grams


@dataclass(frozen=True)
class _Gradients:
    dense: dict[str, tuple[Tensor, Tensor]]  # x [n, T, in] and δ [n, T, out]
    formed: dict[str, Tensor]  # [n, P] of layers over many tokens, and of everything outside the dense layers

    def __len__(self) -> int:
        return len(next(iter([*self.formed.values(), *(x for x, _ in self.dense.values())])))

    def of(self, rows: Tensor) -> _Gradients:
        """Those of some samples."""
        dense = {name: (x[rows.to(x.device)], delta[rows.to(x.device)]) for name, (x, delta) in self.dense.items()}
        return _Gradients(dense, {name: G[rows.to(G.device)] for name, G in self.formed.items()})


# The gradients of a few samples themselves, some of their columns at a time: [columns, N′], one sample per column.
# Whoever wants no more than lengths and angles may turn all gradients at once. Of a dense layer, δ xᵀ, both factors are
# turned: into the space that the N′ vectors x span, and that of the N′ vectors δ, so that N′ × N′ numbers say it all.


def dense_columns(x: Tensor, delta: Tensor, weight: bool, bias: bool) -> Iterator[Tensor]:
    """Σ_t δ_t [x_t, 1]ᵀ, turned; x [N′, T, in], δ [N′, T, out]; `weight` and `bias` say which of the two count."""
    x = torch.cat([x] * weight + [torch.ones_like(x[:, :, :1])] * bias + [x[:, :, :0]], 2)
    if x.shape[1] == 1:
        x, delta = _turned(x[:, 0])[:, None], _turned(delta[:, 0])[:, None]
    for some in blocks(delta.shape[2], x.shape[2], _columns_at_once(len(x))):
        yield torch.einsum("nto,nti->oin", delta[:, :, some], x).flatten(0, 1)


def formed_columns(G: Tensor) -> Iterator[Tensor]:
    """Of gradients that are formed already, G [N′, P]."""
    yield from (G.T[part] for part in blocks(G.shape[1], 1, _columns_at_once(len(G))))


def _columns_at_once(count: int) -> int:
    """Columns in one block; no fewer than samples, or the triangle would cost more than the block."""
    return max(count, CACHED_GATHER // count)


def _turned(vectors: Tensor) -> Tensor:
    """Coordinates [N′, N′] of N′ vectors [N′, width] in an orthonormal basis of what they span, where that is fewer."""
    count, width = vectors.shape
    return torch.linalg.qr(vectors.T, mode="r").R.T if width > count else vectors
