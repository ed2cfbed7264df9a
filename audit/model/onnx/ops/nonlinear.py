"""Activations, each by a formula whose second derivative torch knows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.tensors import align

operator("Relu")(torch.relu)
operator("Sigmoid")(torch.sigmoid)
operator("Tanh")(torch.tanh)


@operator("LeakyRelu")
def _leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@operator("PRelu", weights={1: "weight"})
def _prelu(x: Tensor, slope: Tensor, *, opset: int) -> Tensor:
    if opset < 9 and slope.dim() == 1 and slope.numel() > 1:
        slope = align(slope, x.dim())
    return torch.where(x < 0, slope * x, x)


@operator("Elu")
def _elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@operator("Celu")
def _celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@operator("Selu")
def _selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return gamma * F.elu(x, alpha)


@operator("Gelu")
@operator("Gelu", domain="com.microsoft")
def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@operator("HardSigmoid")
def _hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


@operator("HardSwish")
def _hard_swish(x: Tensor) -> Tensor:
    return x * (x / 6 + 0.5).clamp(0, 1)


@operator("Swish")
@operator("QuickGelu", domain="com.microsoft")
def _swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@operator("SwiGLU")
def _swiglu(gate: Tensor, value: Tensor, *, alpha: float = 1.0) -> Tensor:
    return _swish(gate, alpha=alpha) * value


@operator("Softplus")
def _softplus(x: Tensor) -> Tensor:
    y: Tensor = F.softplus(x, threshold=50.0)  # beyond it the result is x to the last bit, also in float64
    return y


@operator("Mish")
def _mish(x: Tensor) -> Tensor:
    return x * torch.tanh(_softplus(x))


@operator("Softsign")
def _softsign(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


@operator("ThresholdedRelu")
def _thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("Shrink")
def _shrink(x: Tensor, *, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


def _hardest(x: Tensor, dim: int) -> Tensor:
    return torch.zeros_like(x).scatter(dim, x.argmax(dim, keepdim=True), 1)


def _over_axis(function: Callable[[Tensor, int], Tensor], x: Tensor, axis: int | None, opset: int) -> Tensor:
    """Since opset 13 along one axis (default: the last); before, over all axes from `axis` (default: 1) on at once."""
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    start = (1 if axis is None else axis) % x.dim() if x.dim() else 0
    return function(x.flatten(start), -1).reshape(x.shape)


@operator("Softmax")
def _softmax(x: Tensor, *, axis: int | None = None, opset: int) -> Tensor:
    return _over_axis(torch.softmax, x, axis, opset)


@operator("LogSoftmax")
def _log_softmax(x: Tensor, *, axis: int | None = None, opset: int) -> Tensor:
    return _over_axis(torch.log_softmax, x, axis, opset)


@operator("Hardmax")
def _hardmax(x: Tensor, *, axis: int | None = None, opset: int) -> Tensor:
    return _over_axis(_hardest, x, axis, opset)
