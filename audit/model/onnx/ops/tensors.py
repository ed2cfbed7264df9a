"""From ONNX's stored values to torch tensors, and small helpers that every family of operators uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import AttributeProto, TensorProto, numpy_helper
from torch import Tensor

Ints = Tensor | Sequence[int] | int | None

FLOATS: set[int] = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
"""Every one of these becomes the network's own number type, so that it computes in one precision throughout."""

INTEGERS: dict[int, torch.dtype] = {
    TensorProto.BOOL: torch.bool,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    # torch computes little in wide unsigned types: the next wider signed one holds the same values
    TensorProto.UINT16: torch.int32,
    TensorProto.UINT32: torch.int64,
    TensorProto.UINT64: torch.int64,
}


def is_float(tensor: Tensor) -> bool:
    """Whether the tensor holds real numbers."""
    return tensor.is_floating_point()


def to_torch(proto: TensorProto, dtype: torch.dtype) -> Tensor:
    """A stored tensor; real numbers in `dtype`, where a number beyond its range becomes its largest, not infinity."""
    array = numpy_helper.to_array(proto)
    if proto.data_type in INTEGERS:
        return torch.from_numpy(np.array(array.astype(_numpy(INTEGERS[proto.data_type]))))
    if proto.data_type != TensorProto.DOUBLE:
        return torch.from_numpy(np.array(array.astype(np.float32))).to(dtype)
    double, limit = torch.from_numpy(np.array(array)), torch.finfo(dtype).max
    return torch.where(double.isinf(), double, double.clamp(-limit, limit)).to(dtype)


def _numpy(dtype: torch.dtype) -> Any:
    return torch.empty((), dtype=dtype).numpy().dtype


def attribute_value(attribute: AttributeProto, dtype: torch.dtype) -> Any:
    """An attribute as a plain value: number, text, list of these, or tensor."""
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return to_torch(value, dtype)
    if attribute.type == AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def ints(values: Ints) -> list[int]:
    """Sizes, axes or positions as a list, whether they came as an attribute or as a tensor."""
    if values is None:
        return []
    if isinstance(values, Tensor):
        return [int(value) for value in values.flatten().tolist()]
    return [values] if isinstance(values, int) else [int(value) for value in values]


def align(values: Tensor, rank: int, axis: int = 1) -> Tensor:
    """A vector along `axis` of a tensor of `rank` dimensions: [C] → [1, C, 1, …]."""
    return values.reshape([1] * axis + list(values.shape) + [1] * (rank - axis - values.dim()))
