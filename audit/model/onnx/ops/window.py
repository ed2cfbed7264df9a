"""Windows that slide over space, with every way that ONNX has to pad them: convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from audit.model.onnx.ops.registry import as_function, converter, operator
from audit.model.onnx.ops.values import (
    Graph,
    Ints,
    OnnxMapping,
    OnnxNode,
    OperationConverterResult,
    attribute_value,
    ints,
)


@dataclass(frozen=True)
class Window:
    """A sliding window over the spatial axes of a tensor: one entry per axis."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    before: list[int]
    after: list[int]

    @property
    def extent(self) -> list[int]:
        """How far the window reaches along each axis."""
        return [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]

    @property
    def padded(self) -> bool:
        """Whether anything is added around the input."""
        return any(self.before) or any(self.after)

    @property
    def flat_pads(self) -> list[int]:
        """Amounts in the order of `torch.nn.functional.pad`: the last axis first."""
        return [side[i] for i in reversed(range(len(self.kernel))) for side in (self.before, self.after)]


@dataclass(frozen=True)
class Sliding:
    """How a node says that its window slides; what it does not say is None."""

    strides: Ints
    dilations: Ints
    pads: Ints
    auto_pad: str
    ceil: bool = False  # whether a last window may reach beyond the input

    def over(self, sizes: list[int], kernel: list[int]) -> Window:
        """The window over an input of these spatial sizes, with its paddings in numbers."""
        rank = len(kernel)
        stride, dilation = ints(self.strides) or [1] * rank, ints(self.dilations) or [1] * rank
        given = ints(self.pads) if self.pads is not None and self.auto_pad in ("NOTSET", "") else [0] * 2 * rank
        before, after = given[:rank], given[rank:]
        for i in range(rank):
            extent = dilation[i] * (kernel[i] - 1) + 1
            if self.auto_pad.startswith("SAME"):
                missing = max(0, (math.ceil(sizes[i] / stride[i]) - 1) * stride[i] + extent - sizes[i])
                small, large = missing // 2, missing - missing // 2
                before[i], after[i] = (large, small) if self.auto_pad == "SAME_LOWER" else (small, large)
            elif self.ceil:
                room = sizes[i] + before[i] + after[i] - extent
                steps = math.ceil(room / stride[i])
                # a last window that would start in the padding beyond the input is left out
                steps -= steps * stride[i] >= sizes[i] + before[i]
                after[i] += max(0, steps * stride[i] - room)
        return Window(kernel, stride, dilation, before, after)


# convolutions

WEIGHTS = {1: "weight", 2: "bias"}
CONV = (F.conv1d, F.conv2d, F.conv3d)
MODULES: tuple[Callable[..., Any], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONV_TRANSPOSE = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@converter("Conv", domain="")
def _conv(node: OnnxNode, graph: Graph) -> OperationConverterResult:
    """Build a convolution of torch's own wherever torch has one: whoever reads the network knows it by its class."""
    x, weight, *rest = node.input_values
    bias = rest[0] if rest and rest[0] else None
    settings = {attribute.name: attribute_value(attribute, graph.dtype) for attribute in node.proto.attribute}
    constant = graph.is_weight(weight) and (bias is None or graph.is_weight(bias))
    if not constant or settings.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or not _even(settings.get("pads")):
        return as_function(convolve, "conv", WEIGHTS)(node, graph)
    key = ("Conv", weight, bias, *sorted((name, str(value)) for name, value in settings.items()))
    if key not in graph.layers:
        graph.layers[key] = _module(graph, weight, bias, settings)
    return OperationConverterResult(graph.layers[key], OnnxMapping((x,), node.output_values))


def _module(graph: Graph, weight: str, bias: str | None, settings: dict[str, Any]) -> nn.Module:
    shape, given = list(graph.tensor(weight).shape), settings.get
    sliding = Sliding(given("strides"), given("dilations"), given("pads"), given("auto_pad", ""))
    frame = sliding.over(shape[2:], shape[2:])
    places = {"stride": frame.stride, "padding": frame.before, "dilation": frame.dilation}
    group, blank = int(given("group", 1)), {"bias": False, "device": "meta"}
    layer: nn.Module = MODULES[len(shape) - 3](
        shape[1] * group, shape[0], frame.kernel, groups=group, **places, **blank
    )
    layer.weight = graph.parameter(weight)
    layer.register_parameter("bias", None if bias is None else graph.parameter(bias))
    return layer


def _even(pads: Ints) -> bool:
    """Whether both ends are padded alike."""
    amounts = ints(pads) if pads is not None else []
    return amounts[: len(amounts) // 2] == amounts[len(amounts) // 2 :]


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET", dilations: Ints = None,
             group: int = 1, kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None) -> Tensor:  # fmt: skip
    """Y = W ⋆ X + b; uneven paddings are added beforehand, since torch pads both ends alike."""
    frame = Sliding(strides, dilations, pads, auto_pad).over(list(x.shape[2:]), list(weight.shape[2:]))
    padding = frame.before
    if frame.before != frame.after:
        x, padding = F.pad(x, frame.flat_pads), [0] * len(padding)
    conv = CONV[weight.dim() - 3]
    return conv(x, weight, bias, frame.stride, padding, frame.dilation, group)


@operator("ConvTranspose", weights=WEIGHTS)
def _conv_transpose(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
                    dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, output_padding: Ints = None,
                    output_shape: Ints = None, pads: Ints = None, strides: Ints = None) -> Tensor:  # fmt: skip
    """All of the transposed product is computed, then cropped at both ends as the paddings say."""
    frame = Sliding(strides, dilations, pads, auto_pad).over(list(x.shape[2:]), list(weight.shape[2:]))
    rank = len(frame.kernel)
    extra = ints(output_padding) or [0] * rank
    full = [(s - 1) * t + e for s, t, e in zip(x.shape[2:], frame.stride, frame.extent, strict=True)]
    target = ints(output_shape)[-rank:] if output_shape is not None else None
    if target is None and auto_pad.startswith("SAME"):
        target = [s * t for s, t in zip(x.shape[2:], frame.stride, strict=True)]
    before, after = frame.before, [a - e for a, e in zip(frame.after, extra, strict=True)]
    if target is not None:
        total = [f - t for f, t in zip(full, target, strict=True)]
        spare = [max(0, t + e) for t, e in zip(total, extra, strict=True)]
        before = [s // 2 if auto_pad != "SAME_LOWER" else s - s // 2 for s in spare]
        after = [t - b for t, b in zip(total, before, strict=True)]
    result = CONV_TRANSPOSE[rank - 1](x, weight, None, frame.stride, 0, 0, group, frame.dilation)
    crop = [-amount for i in reversed(range(rank)) for amount in (before[i], after[i])]
    result = F.pad(result, crop)
    return result if bias is None else result + bias.reshape([-1] + [1] * rank)


@operator("CausalConvWithState", kind="conv", weights=WEIGHTS)
def _causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None, *,
                 activation: str = "none") -> tuple[Tensor, Tensor]:  # fmt: skip
    reach = weight.shape[-1] - 1
    before = x.new_zeros(*x.shape[:-1], reach) if past is None else past
    padded = torch.cat([before, x], -1)
    result = F.conv1d(padded, weight, bias, groups=x.shape[1])
    if activation in ("silu", "swish"):
        result = result * torch.sigmoid(result)
    return result, padded[..., padded.shape[-1] - reach :]


# pools: the largest, the mean or the p-norm under a window, or over all of space

MAX_POOL = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


@operator("MaxPool")
def _max_pool(x: Tensor, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
              pads: Ints = None, storage_order: int = 0, strides: Ints = None,
              outputs: int) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    frame = Sliding(strides, dilations, pads, auto_pad, bool(ceil_mode)).over(list(x.shape[2:]), ints(kernel_shape))
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
    frame = Sliding(strides, dilations, pads, auto_pad, bool(ceil_mode)).over(sizes, ints(kernel_shape))
    counted = x.new_ones(1, 1, *sizes)
    if count_include_pad:  # the paddings asked for count; what ceil_mode adds beyond them does not
        plain = Sliding(strides, dilations, pads, auto_pad).over(sizes, ints(kernel_shape))
        counted = F.pad(counted, plain.flat_pads, value=1.0)
        beyond = [f - p for f, p in zip(frame.flat_pads, plain.flat_pads, strict=True)]
        counted = F.pad(counted, beyond)
    else:
        counted = F.pad(counted, frame.flat_pads)
    return _window_sum(F.pad(x, frame.flat_pads), frame) / _window_sum(counted, frame)


@operator("LpPool")
def _lp_pool(x: Tensor, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
             p: float = 2, pads: Ints = None, strides: Ints = None) -> Tensor:  # fmt: skip
    frame = Sliding(strides, dilations, pads, auto_pad, bool(ceil_mode)).over(list(x.shape[2:]), ints(kernel_shape))
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
