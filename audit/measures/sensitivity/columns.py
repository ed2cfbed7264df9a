"""What the sensitivity measure keeps of the train samples: one number per sample and quantity, chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.blocks import in_blocks
from audit.maths.decompositions import LocalMap, centred_log_volume, local_map
from audit.maths.resample import Bootstrap, Resampled
from audit.network import DenseLayer, dense_only
from audit.network.random_signs import Estimate
from audit.network.record import LayerProducts, LayerRecord, Products
from audit.report.fields import Interval

Array = NDArray[np.float64]
SMALLEST = 1e-100  # an input below this is as good as zero: its inverse square is out of range


@dataclass(frozen=True)
class SampleColumns:
    """The whole network [n]."""

    theta: Array | None  # ‖∇_θ f‖_F² over all parameters; None where random signs give its mean
    adaptive: Array | None  # Σ_j θ_j² ‖∂f/∂θ_j‖²; likewise
    first_invariant: Array  # Σ_p x_p² ‖∂f/∂x_p‖² at the first layer's own input


@dataclass(frozen=True)
class InputColumns:
    """The map from the model's input to the scores, K = ∂f/∂x [n]; None where many scores leave only its norms."""

    largest: Array  # ‖K‖₂
    log_volume: Array | None  # ½ ln det(K Kᵀ), −inf where the rank is below the number of scores
    rank: Array | None
    dimension: Array | None  # participation ratio; nan where K = 0
    normalized: Array  # ‖x‖² ‖K‖₂²
    invariant: Array  # Σ_p x_p² ‖∂f/∂x_p‖²
    log_volume_centred: Array | None  # on the dimensions orthogonal to (1, …, 1); None for one score


@dataclass(frozen=True)
class MapColumns:
    """One layer: the map from its input to the scores, and its gradients [n]; None where there are many scores."""

    largest: Array | None  # ‖J W‖₂
    frobenius: Array | None  # ‖J W‖_F
    log_volume: Array | None  # ½ ln det(J W Wᵀ Jᵀ), −inf where the rank is below N
    gradient: Array | None  # ‖∇_W f‖_F²
    x_norm: Array  # ‖x‖, or σ_min(X) of its tokens


@dataclass(frozen=True)
class SkipColumns:
    """A layer whose input also goes on another way [n]."""

    whole: Array  # ‖∂f/∂x‖₂ over all ways
    past: Array  # ‖∂f/∂x − J W‖₂


@dataclass(frozen=True)
class LayerColumns(MapColumns):
    """A layer's columns, with what is the same for every sample."""

    layer: DenseLayer
    spectral_norm: float  # ‖W‖₂
    alone: bool  # no other layer holds the same weights, so that ‖∇_W f‖ is a part of ‖∇_θ f‖
    active: list[int]  # for each output, samples on which it moves a score
    skip: SkipColumns | None

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Samples that the bounds speak of."""
        return (self.x_norm > SMALLEST) & self.alone


@dataclass(frozen=True)
class Signs:
    """Means over samples that random signs give, with their standard errors."""

    theta: Estimate  # S(θ)
    adaptive: Estimate
    layers: Mapping[str, Estimate]  # ‖∇_W f‖_F² of layers whose weights nothing else uses, by name


@dataclass(frozen=True)
class Picked:
    """How a sampled audit came to its columns."""

    samples: int
    of: int  # train samples
    signs: Signs
    norm_error: float | None = None  # largest relative error of a norm found by iteration; None: none is
    skipped: str | None = None  # why there are no norms


@dataclass(frozen=True)
class Columns:
    """Everything that was kept, and what else the report needs to know."""

    samples: SampleColumns
    input: InputColumns | None  # None: the input is made of integers
    layers: tuple[LayerColumns, ...]
    first: LayerColumns  # the one that the bounds of a first layer are about
    trace: Array | None  # what Tr H has beyond S(θ)
    trace_skipped: str | None
    outputs: int
    epsilon: float
    parameters: int
    others: int  # parameters that no dense layer holds alone
    changed: tuple[float, float] | None  # adaptive sharpness from random changes, and its standard error
    picked: Picked | None = None  # None: all train samples

    @property
    def slack(self) -> float:
        """How much rounding may break an inequality that is tight."""
        return 1e-9 if self.epsilon < 1e-12 else 1e-4

    @property
    def dense(self) -> list[LayerColumns]:
        """The dense layers, convolutions aside."""
        kept = dense_only(tuple(columns.layer for columns in self.layers))
        return [columns for columns in self.layers if columns.layer in kept]


Part = TypeVar("Part", SampleColumns, InputColumns, MapColumns, SkipColumns)


def joined(parts: Sequence[Part]) -> Part:
    """The columns of chunks, one after the other."""
    return type(parts[0])(**{name: _joined([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def _joined(values: Sequence[Array | None]) -> Any:
    kept = [value for value in values if value is not None]
    return np.concatenate(kept) if kept else None


def column(values: Tensor) -> Array:
    """A chunk's column [n]."""
    found: Array = values.double().cpu().numpy()
    return found


# The local maps of a chunk: from a layer's input to the scores, and from the model's input to the scores.


def layer_map(products: LayerProducts, epsilon: float) -> LocalMap:
    """From the layer's own input to the scores."""
    layer = products.layer.layer
    if layer.patches is None:
        return local_map(products.local_map, layer.tokens * layer.in_features, epsilon, products.local_gram)
    K = through_convolution(products.layer)
    return local_map(K, K.shape[2], epsilon)


def through_convolution(record: LayerRecord) -> Tensor:
    """∂f/∂x [n, C, size of x] at a convolution's own input: patches overlap, so J W alone counts pixels apart."""
    assert record.layer.patches is not None
    positions = prod(record.layer.patches.positions)
    g = record.J.double().reshape(-1, positions, record.layer.out_features)
    return record.layer.patches.vjp(record.W.double(), g).reshape(*record.J.shape[:2], -1)


def invariant_at(products: LayerProducts) -> Tensor:
    """Σ_p x_p² ‖(J W)_p‖² [n] at a layer's own input, that is at its patches if it is a convolution (Eq. 43)."""
    record = products.layer
    if record.layer.patches is None and not record.layer.has_wide_input:
        return in_blocks(lambda K, x: _invariant(K, x.double()), products.JW, record.x)
    W, width = record.W.double(), record.J.shape[1] * record.x[0].numel()
    return in_blocks(lambda J, x: _invariant(J.double() @ W, x.double()), record.J, record.x, width=width)


def input_columns(
    products: Products, x: Tensor, first_map: LocalMap | None, invariant: Tensor, epsilon: float
) -> InputColumns | None:
    """The map of the model's input x [n, D].

    `first_map` and `invariant` are those of the first layer; the map is None unless everything enters through it.
    """
    if products.input_map is None:
        return None
    (K, gram), local = products.input_map, first_map
    if local is None:
        local = local_map(K, x.shape[1], epsilon, gram)
        invariant = in_blocks(_invariant, K, x)  # pixels count once, in however many patches they are
    centred = centred_log_volume(K, gram, local.largest, x.shape[1], epsilon) if K.shape[1] > 1 else None
    return InputColumns(
        largest=column(local.largest),
        log_volume=column(local.log_volume),
        rank=column(local.rank),
        dimension=column(local.dimension),
        normalized=column(x.square().sum(1) * local.largest.square()),
        invariant=column(invariant),
        log_volume_centred=None if centred is None else column(centred),
    )


def _invariant(K: Tensor, x: Tensor) -> Tensor:
    """Σ_p x_p² ‖∂f/∂x_p‖² [n] of K [n, C, …] and x [n, …]."""
    return (K * x[:, None]).square_().flatten(1).sum(1)


# Means of per-sample columns, of logarithms and of volumes, each with its bootstrap interval.
#
# All columns are resampled in one go, so they are named at the start; a number is then asked for by the column's name.


Name = tuple[str, ...]
Maybe = tuple[float | None, Interval]  # None: no sample has such a number
NOTHING: Maybe = (None, None)
THETA, ADAPTIVE, TRACE = ("network", "theta"), ("network", "adaptive"), ("network", "trace")
CENTRED = ("input", "log_volume_centred")


def of_input(quantity: str) -> Name:
    """A column of the map from the input to the scores."""
    return "input", quantity


def of_layer(layer: LayerColumns, quantity: str) -> Name:
    """A column of one layer."""
    return "layer", layer.layer.name, quantity


class Means:
    """`plain` columns have a number for every sample; those of `partial` ones are −inf or nan for some."""

    def __init__(self, plain: Mapping[Name, Array], partial: Mapping[Name, Array], bootstrap: Bootstrap) -> None:
        self._tops = {name: _top(column) for name, column in partial.items()}
        table = dict(plain)
        for name, column in partial.items():
            exists = np.isfinite(column)
            table |= {
                (*name, "exists"): exists.astype(np.float64),
                (*name, "value"): np.where(exists, column, 0.0),
                (*name, "volume"): _volumes(column, self._tops[name]),
            }
        self._names, self._table = table.keys() | set(), Resampled(table, bootstrap)

    def mean(self, name: Name) -> Maybe:
        """Of a plain column."""
        return self.of(lambda values: values, name)

    def of(self, function: Callable[..., Array], *names: Name) -> Maybe:
        """A function of several columns' means; nothing where one of them is missing."""
        if not self._names.issuperset(names):
            return NOTHING
        return self._table.value(function, *names), self._table.ci95(function, *names)

    def mean_where_any(self, name: Name) -> Maybe:
        """Of a partial column, over the samples that have a number."""
        if not np.isfinite(self._tops.get(name, -np.inf)):
            return NOTHING
        return self.of(np.divide, (*name, "value"), (*name, "exists"))

    def log_mean(self, *names: Name) -> Maybe:
        """Logarithm of the sum over columns of logarithms of their mean volumes; −inf counts as volume 0."""
        present = [name for name in names if np.isfinite(self._tops.get(name, -np.inf))]
        if not present:
            return NOTHING
        top = max(self._tops[name] for name in present)
        scales = [np.exp(self._tops[name] - top) for name in present]

        def total(*means: Array) -> Array:
            summed: Array = top + np.log(sum(scale * mean for scale, mean in zip(scales, means, strict=True)))
            return summed

        return self.of(total, *((*name, "volume") for name in present))


def _volumes(logs: Array, top: float) -> Array:
    """Volumes in units of the largest, so that none leaves the range of numbers."""
    exists = np.isfinite(logs)
    return np.where(exists, np.exp(np.where(exists, logs - top if np.isfinite(top) else 0.0, 0.0)), 0.0)


def _top(column: Array) -> float:
    """The largest number; −inf where there is none."""
    return float(column[np.isfinite(column)].max(initial=-np.inf))
