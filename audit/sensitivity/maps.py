"""The local maps of a chunk: from a layer's input to the scores, and from the model's input to the scores."""

from __future__ import annotations

from math import prod

from torch import Tensor

from audit.cached import in_blocks
from audit.record import LayerRecord, Record
from audit.sensitivity.columns import InputColumns, column
from audit.sensitivity.singular import LocalMap, centred_log_volume, local_map


def layer_map(record: LayerRecord, epsilon: float) -> LocalMap:
    """From the layer's own input to the scores."""
    layer = record.layer
    if layer.patches is None:
        return local_map(record.local, layer.tokens * layer.in_features, epsilon, record.local_gram)
    K = through_convolution(record)
    return local_map(K, K.shape[2], epsilon)


def through_convolution(record: LayerRecord) -> Tensor:
    """∂f/∂x [n, C, size of x] at a convolution's own input: patches overlap, so J W alone counts pixels apart."""
    assert record.layer.patches is not None
    positions = prod(record.layer.patches.positions)
    g = record.J.double().reshape(-1, positions, record.layer.out_features)
    pulled = record.layer.patches.pull(record.W.double(), g)
    return pulled.reshape(*record.J.shape[:2], -1)


def invariant_at(record: LayerRecord) -> Tensor:
    """Σ_p x_p² ‖(J W)_p‖² [n] at a layer's own input, that is at its patches if it is a convolution (Eq. 43)."""
    if record.layer.patches is None and not record.layer.squeezes:
        return in_blocks(lambda K, x: _invariant(K, x.double()), record.pulled, record.x)
    W, numbers = record.W.double(), record.J.shape[1] * record.x[0].numel()
    return in_blocks(lambda J, x: _invariant(J.double() @ W, x.double()), record.J, record.x, numbers=numbers)


def input_columns(
    record: Record, x: Tensor, first: LayerRecord, first_map: LocalMap, invariant: Tensor, epsilon: float
) -> InputColumns | None:
    """The map of the model's input x [n, D]; that of the first layer, where everything enters through it."""
    if record.input_map is None:
        return None
    K, gram = record.input_map
    local = first_map
    if record.entrance is not first:
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
