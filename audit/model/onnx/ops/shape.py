"""Operators that move elements without changing them, ask for their number, or make tensors of a shape or type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.values import FLOATS, INTEGERS, Ints, ints, is_float


@operator("Reshape")
def _reshape(x: Tensor, target: Tensor | None = None, *, shape: Ints = None, allowzero: int = 0) -> Tensor:
    sizes = ints(target if target is not None else shape)
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return torch.reshape(x, sizes)


@operator("Flatten")
def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    lead = math.prod(x.shape[: axis if axis >= 0 else axis + x.dim()])
    return x.reshape(lead, x.numel() // lead if lead else math.prod(x.shape[axis:]))


@operator("Squeeze")
def _squeeze(x: Tensor, axes_input: Tensor | None = None, *, axes: Ints = None) -> Tensor:
    dims = axes_input if axes_input is not None else axes
    return x.squeeze() if dims is None else x.squeeze(tuple(ints(dims)))


@operator("Unsqueeze")
def _unsqueeze(x: Tensor, axes_input: Tensor | None = None, *, axes: Ints = None) -> Tensor:
    dims = ints(axes_input if axes_input is not None else axes)
    rank = x.dim() + len(dims)
    for axis in sorted(axis % rank for axis in dims):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose")
def _transpose(x: Tensor, *, perm: Ints = None) -> Tensor:
    return x.permute(ints(perm) if perm is not None else list(range(x.dim()))[::-1])


@operator("Expand")
def _expand(x: Tensor, shape: Tensor) -> Tensor:
    sizes = ints(shape)
    lead = [1] * (x.dim() - len(sizes))
    missing = [1] * (len(sizes) - x.dim())
    pairs = zip([*missing, *x.shape], [*lead, *sizes], strict=True)
    return x.expand([wanted if own == 1 else own for own, wanted in pairs])


@operator("Tile")
def _tile(x: Tensor, repeats: Tensor, axis: Tensor | None = None) -> Tensor:
    if axis is None:
        return x.repeat(ints(repeats))
    counts = [1] * x.dim()  # opset 1: one number of tiles along one axis
    counts[int(axis)] = int(repeats)
    return x.repeat(counts)


@operator("Concat")
def _concat(*inputs: Tensor, axis: int = 1) -> Tensor:
    return torch.cat(inputs, axis)


@operator("Split")
def _split(x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, split: Ints = None,
           num_outputs: int = 0, outputs: int) -> tuple[Tensor, ...]:  # fmt: skip
    given = ints(sizes if sizes is not None else split)
    if not given:  # equal parts, the last one smaller where the axis does not divide
        part = math.ceil(x.shape[axis] / outputs)
        given = [min(part, max(0, x.shape[axis] - i * part)) for i in range(outputs)]
    return torch.split_with_sizes(x, given, axis)


@operator("Pad")
def _pad(x: Tensor, pads_input: Tensor | None = None, constant: Tensor | None = None, axes: Tensor | None = None, *,
         pads: Ints = None, paddings: Ints = None, mode: str = "constant", value: float = 0.0) -> Tensor:  # fmt: skip
    amounts = ints(pads_input if pads_input is not None else pads if pads is not None else paddings)
    dims = [axis % x.dim() for axis in ints(axes)] if axes is not None else list(range(x.dim()))
    ends = {axis: (amounts[i], amounts[i + len(dims)]) for i, axis in enumerate(dims)}
    if mode == "constant":
        flat = [amount for axis in reversed(range(x.dim())) for amount in ends.get(axis, (0, 0))]
        return F.pad(x, flat, value=value if constant is None or not constant.numel() else constant.item())
    for axis, (before, after) in ends.items():
        if before or after:
            x = x.index_select(axis, _source(x.shape[axis], before, after, mode).to(x.device))
    return x


def _source(size: int, before: int, after: int, mode: str) -> Tensor:
    """For every place along a padded axis, the place that it repeats. A negative amount crops."""
    start, stop = max(0, -before), size + min(0, after)
    place, size = torch.arange(-before - start, size + after - start), stop - start
    if mode == "edge":
        place = place.clamp(0, size - 1)
    elif mode == "wrap":
        place = place % size
    else:  # reflect: there and back again, the edge itself not repeated
        period = max(1, 2 * (size - 1))
        place = (place % period).where(place % period < size, period - place % period)
    return place + start


@operator("DepthToSpace")
def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    depth = c // blocksize**2
    if mode == "DCR":
        blocks = x.reshape(n, blocksize, blocksize, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, depth, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, depth, h * blocksize, w * blocksize)


@operator("SpaceToDepth")
def _space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.permute(order).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@operator("CenterCropPad")
def _center_crop_pad(x: Tensor, shape: Tensor, *, axes: Ints = None) -> Tensor:
    for axis, size in zip(ints(axes) if axes is not None else range(x.dim()), ints(shape), strict=True):
        spare = size - x.shape[axis]
        before = spare // 2 if spare > 0 else -(-spare // 2)
        pads = [0, 0] * (x.dim() - axis % x.dim() - 1) + [before, spare - before]
        x = F.pad(x, pads)
    return x


@operator("ReverseSequence")
def _reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    moved = x.movedim((batch_axis, time_axis), (0, 1))
    return reverse_time(moved, lengths).movedim((0, 1), (batch_axis, time_axis))


def reverse_time(x: Tensor, lengths: Tensor) -> Tensor:
    """The first `lengths[n]` steps of every sequence in x [n, time, …], backwards; the rest stays in place."""
    step = torch.arange(x.shape[1], device=x.device)
    length = lengths.to(x.device).unsqueeze(1)
    place = torch.where(step < length, length - 1 - step, step)
    return x[torch.arange(x.shape[0], device=x.device).unsqueeze(1), place]


@operator("Col2Im")
def _col2im(x: Tensor, image: Tensor, block: Tensor, *, dilations: Ints = None, pads: Ints = None,
            strides: Ints = None) -> Tensor:  # fmt: skip
    size, kernel = ints(image), ints(block)
    rank = len(size)
    step, stride, pad = ints(dilations) or [1] * rank, ints(strides) or [1] * rank, ints(pads) or [0] * 2 * rank
    padded = [s + pad[i] + pad[i + rank] for i, s in enumerate(size)]
    # place of every column element in the flattened padded image: [kernel elements, blocks]
    place = torch.zeros((1, 1), dtype=torch.long, device=x.device)
    for i in range(rank):
        count = (padded[i] - step[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        start = torch.arange(count, device=x.device) * stride[i]
        along = torch.arange(kernel[i], device=x.device).unsqueeze(1) * step[i] + start  # [kernel, count]
        place = (place * padded[i])[:, None, :, None] + along[None, :, None, :]
        place = place.reshape(place.shape[0] * kernel[i], -1)
    channels = x.shape[1] // math.prod(kernel)
    columns = x.reshape(x.shape[0], channels, -1)
    image_flat = columns.new_zeros(*columns.shape[:2], math.prod(padded)).index_add(2, place.flatten(), columns)
    result = image_flat.reshape(*columns.shape[:2], *padded)
    return F.pad(result, [-pad[i + side * rank] for i in reversed(range(rank)) for side in (0, 1)])


# new tensors and other types; real numbers are always of the network's own precision


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
