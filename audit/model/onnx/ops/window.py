"""Pools: the largest, the mean or the p-norm under a window, or over all of space."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.conv import CONV
from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.spatial import Window, window
from audit.model.onnx.ops.tensors import Ints, ints

MAX_POOL = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


@operator("MaxPool")
def _max_pool(x: Tensor, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
              pads: Ints = None, storage_order: int = 0, strides: Ints = None,
              outputs: int) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    frame = window(list(x.shape[2:]), ints(kernel_shape), strides, dilations, pads, auto_pad, bool(ceil_mode))
    lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    padded = F.pad(x, frame.flat_pads, value=lowest) if frame.padded else x
    real = padded if x.is_floating_point() else padded.to(torch.float32)
    pool = MAX_POOL[len(frame.kernel) - 1]
    if outputs == 1:
        return pool(real, frame.kernel, frame.stride, dilation=frame.dilation).to(x.dtype)
    best, place = pool(real, frame.kernel, frame.stride, dilation=frame.dilation, return_indices=True)
    return best.to(x.dtype), _places(place, list(x.shape), list(padded.shape), frame, bool(storage_order))


def _places(place: Tensor, shape: list[int], padded: list[int], frame: Window, column_major: bool) -> Tensor:
    """Places in the padded image of one channel, as places in the whole flattened input, the way ONNX counts them."""
    coordinates = []
    for axis in reversed(range(len(frame.kernel))):
        coordinates.append(place % padded[axis + 2] - frame.before[axis])
        place = place // padded[axis + 2]
    order = list(range(len(frame.kernel)))[:: 1 if not column_major else -1]
    flat = torch.arange(shape[0] * shape[1], device=place.device).reshape(shape[0], shape[1], *[1] * len(order))
    for axis in order:
        flat = flat * shape[axis + 2] + coordinates[len(order) - 1 - axis]
    return flat


def _window_sum(x: Tensor, frame: Window) -> Tensor:
    """The sum under the window, as a convolution of every channel with ones: it knows strides and dilations."""
    flat = x.reshape(-1, 1, *x.shape[2:])
    ones = x.new_ones(1, 1, *frame.kernel)
    total = CONV[len(frame.kernel) - 1](flat, ones, None, frame.stride, 0, frame.dilation)
    return total.reshape(*x.shape[:2], *total.shape[2:])


@operator("AveragePool")
def _average_pool(x: Tensor, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0,
                  count_include_pad: int = 0, dilations: Ints = None, pads: Ints = None,
                  strides: Ints = None) -> Tensor:  # fmt: skip
    sizes = list(x.shape[2:])
    frame = window(sizes, ints(kernel_shape), strides, dilations, pads, auto_pad, bool(ceil_mode))
    counted = x.new_ones(1, 1, *sizes)
    if count_include_pad:  # the paddings asked for count; what ceil_mode adds beyond them does not
        plain = window(sizes, ints(kernel_shape), strides, dilations, pads, auto_pad)
        counted = F.pad(counted, plain.flat_pads, value=1.0)
        beyond = [f - p for f, p in zip(frame.flat_pads, plain.flat_pads, strict=True)]
        counted = F.pad(counted, beyond)
    else:
        counted = F.pad(counted, frame.flat_pads)
    return _window_sum(F.pad(x, frame.flat_pads), frame) / _window_sum(counted, frame)


@operator("LpPool")
def _lp_pool(x: Tensor, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
             p: float = 2, pads: Ints = None, strides: Ints = None) -> Tensor:  # fmt: skip
    frame = window(list(x.shape[2:]), ints(kernel_shape), strides, dilations, pads, auto_pad, bool(ceil_mode))
    return _window_sum(F.pad(x.abs() ** p, frame.flat_pads), frame) ** (1 / p)


def _space(x: Tensor) -> list[int]:
    return list(range(2, x.dim()))


@operator("GlobalAveragePool")
def _global_average_pool(x: Tensor) -> Tensor:
    return x.mean(_space(x), keepdim=True)


@operator("GlobalMaxPool")
def _global_max_pool(x: Tensor) -> Tensor:
    return x.amax(_space(x), keepdim=True)


@operator("GlobalLpPool")
def _global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, p, _space(x), keepdim=True)
    return norm


@operator("MaxUnpool")
def _max_unpool(x: Tensor, places: Tensor, output_shape: Tensor | None = None, *, kernel_shape: Ints, pads: Ints = None,
                strides: Ints = None) -> Tensor:  # fmt: skip
    kernel = ints(kernel_shape)
    stride, pad = ints(strides) or [1] * len(kernel), ints(pads) or [0] * 2 * len(kernel)
    sizes = [(s - 1) * t + k - pad[i] - pad[i + len(kernel)]
             for i, (s, t, k) in enumerate(zip(x.shape[2:], stride, kernel, strict=True))]  # fmt: skip
    shape = [*x.shape[:2], *sizes]
    target = ints(output_shape) if output_shape is not None else shape
    flat = x.new_zeros(math.prod(shape)).scatter(0, places.flatten(), x.flatten()).reshape(shape)
    grow = [amount for now, then in zip(reversed(shape), reversed(target), strict=True) for amount in (0, then - now)]
    return F.pad(flat, grow)
