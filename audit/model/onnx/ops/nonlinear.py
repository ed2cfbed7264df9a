"""What stands between products: activations and normalisations, by formulas whose second derivatives torch knows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.values import Ints, align, ints

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


# normalisations: (x - mean) / √(variance + ε) · scale + bias


WEIGHTS = {1: "weight", 2: "bias"}


def standardise(x: Tensor, dims: list[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Give x mean 0 and variance 1 over `dims`; return also the mean and the inverse deviation."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    inverse = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + epsilon)
    return centred * inverse, mean, inverse


@operator("BatchNormalization", kind="batchnorm", weights=WEIGHTS)
def _batch_norm(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5,
                momentum: float = 0.9, spatial: int = 1, training_mode: int = 0,
                outputs: int) -> tuple[Tensor, ...]:  # fmt: skip
    used_mean, used_variance = mean, variance
    if training_mode:
        dims = [axis for axis in range(x.dim()) if axis != 1]
        used_mean, used_variance = x.mean(dims), x.var(dims, correction=0)
    m, v, g, b = (align(part, x.dim()) for part in (used_mean, used_variance, scale, bias))
    y = (x - m) * (g * torch.rsqrt(v + epsilon)) + b
    running = [momentum * old + (1 - momentum) * new for old, new in ((mean, used_mean), (variance, used_variance))]
    return (y, *running, used_mean, used_variance)[:outputs]


@operator("InstanceNormalization", kind="instancenorm", weights=WEIGHTS)
def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    y, _, _ = standardise(x, list(range(2, x.dim())), epsilon)
    return y * align(scale, x.dim()) + align(bias, x.dim())


@operator("LayerNormalization", kind="layernorm", weights=WEIGHTS)
@operator("LayerNormalization", domain="com.microsoft", kind="layernorm", weights=WEIGHTS)
def _layer_norm(x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5,
                stash_type: int = 1) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, mean, inverse = standardise(x, list(range(axis % x.dim(), x.dim())), epsilon)
    y = y * scale
    return y if bias is None else y + bias, mean, inverse


@operator("RMSNormalization", kind="rmsnorm", weights=WEIGHTS)
@operator("SimplifiedLayerNormalization", kind="rmsnorm", weights=WEIGHTS)
def _rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    dims = list(range(axis % x.dim(), x.dim()))
    return x * torch.rsqrt((x * x).mean(dims, keepdim=True) + epsilon) * scale


@operator("GroupNormalization", kind="groupnorm", weights=WEIGHTS)
def _group_norm(x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1,
                opset: int) -> Tensor:  # fmt: skip
    grouped = x.reshape(x.shape[0], num_groups, -1)
    y = standardise(grouped, [2], epsilon)[0].reshape(x.shape)
    if opset < 21:  # one number per group then, one per channel since
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return y * align(scale, x.dim()) + align(bias, x.dim())


@operator("MeanVarianceNormalization")
def _mean_variance(x: Tensor, *, axes: Ints = None) -> Tensor:
    dims = ints(axes) if axes is not None else [0, 2, 3]
    deviation = x.var(dims, correction=0, keepdim=True).sqrt()
    return (x - x.mean(dims, keepdim=True)) / (deviation + 1e-9)


@operator("LpNormalization")
def _lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return x / torch.where(norm == 0, torch.ones_like(norm), norm)


@operator("LRN")
def _local_response(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    around = [0, 0] * (x.dim() - 2) + [(size - 1) // 2, size - 1 - (size - 1) // 2]
    squares = F.pad(x * x, around).unfold(1, size, 1).sum(-1)
    return x / (bias + alpha / size * squares) ** beta
