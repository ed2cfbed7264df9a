"""Operators that onnxruntime's optimiser writes when it saves a fused graph (domain com.microsoft)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.conv import convolve
from audit.model.onnx.ops.matrix import gemm
from audit.model.onnx.ops.norm import standardise
from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.tensors import Ints

DOMAIN = "com.microsoft"


def _activate(x: Tensor, name: str, parameters: list[float] | None) -> Tensor:
    alpha, beta = (*(parameters or []), None, None)[:2]
    functions = {
        "": lambda: x,
        "Relu": lambda: torch.relu(x),
        "Tanh": lambda: torch.tanh(x),
        "Sigmoid": lambda: torch.sigmoid(x),
        "LeakyRelu": lambda: F.leaky_relu(x, 0.01 if alpha is None else alpha),
        "Clip": lambda: x.clamp(alpha, beta),
        "HardSigmoid": lambda: ((alpha or 0.2) * x + (0.5 if beta is None else beta)).clamp(0, 1),
    }
    return functions[name]()


@operator("BiasGelu", domain=DOMAIN)
def _bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@operator("FastGelu", domain=DOMAIN)
def _fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("BiasAdd", domain=DOMAIN)
def _bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@operator("FusedMatMul", "TransposeMatMul", domain=DOMAIN, kind="matmul", weights={0: "left", 1: "weight"})
def _fused_matmul(a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
                  transBatchA: int = 0, transBatchB: int = 0) -> Tensor:  # fmt: skip
    a, b = _batch_last(a, transBatchA), _batch_last(b, transBatchB)
    return alpha * torch.matmul(a.mT if transA else a, b.mT if transB else b)


def _batch_last(x: Tensor, wanted: int) -> Tensor:
    """[m, batch…, k] instead of [batch…, m, k]."""
    return x.movedim(0, -2) if wanted else x


@operator("FusedGemm", domain=DOMAIN, kind="gemm", weights={1: "weight", 2: "bias"})
def _fused_gemm(a: Tensor, b: Tensor, c: Tensor | None = None, *, activation: str = "",
                activation_alpha: float | None = None, activation_beta: float | None = None, alpha: float = 1.0,
                beta: float = 1.0, transA: int = 0, transB: int = 0) -> Tensor:  # fmt: skip
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activate(y, activation, [v for v in (activation_alpha, activation_beta) if v is not None])


@operator("FusedConv", domain=DOMAIN, kind="conv", weights={1: "weight", 2: "bias"})
def _fused_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, skip: Tensor | None = None, *,
                activation: str = "", activation_params: list[float] | None = None, auto_pad: str = "NOTSET",
                dilations: Ints = None, group: int = 1, kernel_shape: Ints = None, pads: Ints = None,
                strides: Ints = None) -> Tensor:  # fmt: skip
    y = convolve(x, weight, bias, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return _activate(y if skip is None else y + skip, activation, activation_params)


@operator("SkipLayerNormalization", domain=DOMAIN, kind="layernorm", weights={2: "weight", 3: "bias", 4: "skip_bias"})
def _skip_layer_norm(x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None,
                     skip_bias: Tensor | None = None, *, epsilon: float = 1e-12) -> tuple[Tensor, ...]:  # fmt: skip
    total = x + skip if skip_bias is None else x + skip + skip_bias
    y, mean, inverse = standardise(total, [-1], epsilon)
    y = y * scale
    return (y if bias is None else y + bias), mean, inverse, total


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN, kind="rmsnorm", weights={2: "weight", 3: "skip_bias"})
def _skip_rms_norm(x: Tensor, skip: Tensor, scale: Tensor, skip_bias: Tensor | None = None, *,
                   epsilon: float = 1e-12) -> tuple[Tensor, ...]:  # fmt: skip
    total = x + skip if skip_bias is None else x + skip + skip_bias
    mean_square = (total * total).mean(-1, keepdim=True)
    inverse = torch.rsqrt(mean_square + epsilon)
    return total * inverse * scale, mean_square, inverse, total
