"""Convolutions in one to three dimensions, with every way that ONNX has to say how they are padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from audit.model.onnx.ops.registry import as_function, converter, operator
from audit.model.onnx.ops.spatial import window
from audit.model.onnx.ops.tensors import Ints, attribute_value, ints
from audit.model.onnx.ops.values import Graph, OnnxMapping, OnnxNode, OperationConverterResult

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
    frame = window(shape[2:], shape[2:], given("strides"), given("dilations"), given("pads"), given("auto_pad", ""))
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
    frame = window(list(x.shape[2:]), list(weight.shape[2:]), strides, dilations, pads, auto_pad)
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
    frame = window(list(x.shape[2:]), list(weight.shape[2:]), strides, dilations, pads, auto_pad)
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
