"""Operators that make tensors or change their type; real numbers are always of the network's own precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.tensors import FLOATS, INTEGERS, ints, is_float


def _known_type(attributes: Mapping[str, Any]) -> bool:
    """float8, int4, complex numbers and text have no place in a differentiable network."""
    return all(attributes.get(name, 1) in FLOATS | set(INTEGERS) for name in ("to", "dtype", "output_datatype"))


@operator("Cast", accepts=_known_type)
def _cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up", like: Tensor) -> Tensor:
    return x.to(like.dtype if to in FLOATS else INTEGERS[to])


@operator("CastLike")
def _cast_like(x: Tensor, target: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(target.dtype)


@operator("Shape")
def _shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.long, device=x.device)


@operator("Size")
def _size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), device=x.device)


@operator("ConstantOfShape")
def _constant_of_shape(shape: Tensor, *, value: Tensor | None = None, like: Tensor) -> Tensor:
    if value is None:
        return like.new_zeros(ints(shape))
    dtype = like.dtype if is_float(value) else value.dtype
    return value.to(like.device, dtype).reshape(()).expand(ints(shape))


@operator("Range")
def _range(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    first, last, step = start.item(), limit.item(), delta.item()
    return torch.arange(first, last, step, dtype=start.dtype, device=start.device)


@operator("EyeLike", accepts=_known_type)
def _eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0, like: Tensor) -> Tensor:
    kind = x.dtype if dtype is None else like.dtype if dtype in FLOATS else INTEGERS[dtype]
    row, column = (torch.arange(size, device=x.device) for size in x.shape)
    return (column == row.unsqueeze(1) + k).to(kind)


def _window(size: Tensor, cosines: tuple[float, ...], periodic: int, dtype: int, like: Tensor) -> Tensor:
    """a₀ - a₁ cos(2πn/N) + a₂ cos(4πn/N)."""
    length = int(size)
    angle = 2 * torch.pi * torch.arange(length, dtype=like.dtype, device=like.device) / (length - (not periodic))
    window = sum(a * (-1) ** i * torch.cos(i * angle) for i, a in enumerate(cosines))
    return torch.as_tensor(window).to(like.dtype if dtype in FLOATS else INTEGERS[dtype])


@operator("HannWindow", accepts=_known_type)
def _hann(size: Tensor, *, output_datatype: int = TensorProto.FLOAT, periodic: int = 1, like: Tensor) -> Tensor:
    return _window(size, (0.5, 0.5), periodic, output_datatype, like)


@operator("HammingWindow", accepts=_known_type)
def _hamming(size: Tensor, *, output_datatype: int = TensorProto.FLOAT, periodic: int = 1, like: Tensor) -> Tensor:
    return _window(size, (25 / 46, 21 / 46), periodic, output_datatype, like)


@operator("BlackmanWindow", accepts=_known_type)
def _blackman(size: Tensor, *, output_datatype: int = TensorProto.FLOAT, periodic: int = 1, like: Tensor) -> Tensor:
    return _window(size, (0.42, 0.5, 0.08), periodic, output_datatype, like)
