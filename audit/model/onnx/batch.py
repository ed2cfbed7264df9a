"""Free a batch size that an exporter has written into the graph, and prove by running it that nothing else changed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto

from audit.model.onnx.batch_size import lift_batch
from audit.model.onnx.constant_folding import fold
from audit.model.onnx.graph import Array
from audit.model.onnx.runtime import RuntimeFailure, Session, random_input
from audit.model.onnx.types import TensorType, tensor_type

FREE_SIZES = (8, 16, 32, 64, 224)
"""What to try for other sizes that a file leaves open."""
CLOSE = 1e-3
"""Relative to the largest output: far above float16 rounding of a whole network's answer, far below any real change."""


def settle_batch(model: ModelProto) -> tuple[ModelProto, int | None]:
    """The folded model with a free batch size, or with its own where the graph insists on that; and that size."""
    shape = tensor_type(model.graph.input[0]).shape
    size = shape[0] if shape else None
    fixed = _copy(model)
    fold(fixed)
    if size is None:
        return fixed, None
    freed = _copy(model)
    freed.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    freed.graph.output[0].type.tensor_type.ClearField("shape")
    fold(freed)
    lift_batch(fixed, freed, size)
    fold(freed)
    return (freed, None) if _agree(fixed, freed, size) else (fixed, size)


def _copy(model: ModelProto) -> ModelProto:
    other = ModelProto()
    other.CopyFrom(model)
    return other


def _agree(fixed: ModelProto, freed: ModelProto, size: int) -> bool:
    """Two batches through the fixed graph, both at once through the free one: the same answers?"""
    name, output = fixed.graph.input[0].name, fixed.graph.output[0].name
    try:
        old, new = Session(fixed), Session(freed)
    except RuntimeFailure:
        return False
    for x in trial_inputs(tensor_type(fixed.graph.input[0]), 2 * size):
        try:
            halves = [old.run([output], {name: x[start : start + size]})[0] for start in (0, size)]
        except RuntimeFailure:
            continue
        try:
            whole = new.run([output], {name: x})[0]
        except RuntimeFailure:
            return False
        return _same(np.concatenate([np.atleast_1d(half) for half in halves]), np.atleast_1d(whole), 2 * size)
    return False


def _same(expected: Array, answer: Array, samples: int) -> bool:
    if len(answer) != samples or expected.size != answer.size:
        return False
    expected, answer = (part.reshape(samples, -1).astype(np.float64) for part in (expected, answer))
    scale = np.abs(expected).max(initial=np.finfo(np.float64).tiny)
    return bool(np.allclose(expected, answer, rtol=0, atol=CLOSE * scale, equal_nan=True))


def trial_inputs(kind: TensorType, count: int) -> Iterator[Array]:
    """Random batches of `count` samples, one for every guess at the sizes that the file leaves open."""
    rest = (kind.shape or ())[1:]
    for guess in FREE_SIZES if None in rest else FREE_SIZES[:1]:
        yield random_input((count, *(guess if size is None else size for size in rest)), kind.element)
