"""Normalisations, all by formula: (x - mean) / √(variance + ε) · scale + bias."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.tensors import Ints, align, ints

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
