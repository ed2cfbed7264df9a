"""Operators that stand for several, by formula, since fused kernels have no second derivative."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.arithmetic import gemm
from audit.model.onnx.ops.nonlinear import standardise
from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.values import Ints
from audit.model.onnx.ops.window import convolve


def _heads(x: Tensor, count: int) -> Tensor:
    """[n, time, heads · size] → [n, heads, time, size]; four dimensions are left as they are."""
    return x if x.dim() == 4 else x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def _masked_softmax(scores: Tensor) -> Tensor:
    """Softmax over keys; a query that may see no key at all gets zeros, not NaN."""
    blind = torch.isneginf(scores).all(-1, keepdim=True)
    weights = torch.softmax(torch.where(blind, torch.zeros_like(scores), scores), -1)
    return torch.where(blind, torch.zeros_like(weights), weights)


def _frame(scores: Tensor, offset: Tensor, causal: bool, left: int, right: int) -> Tensor:
    """Which keys each query may see, by position: [n or 1, 1, queries, keys]."""
    query = torch.arange(scores.shape[-2], device=scores.device).reshape(1, 1, -1, 1) + offset.reshape(-1, 1, 1, 1)
    key = torch.arange(scores.shape[-1], device=scores.device)
    seen = torch.ones_like(query == key)
    if causal:
        seen = seen & (key <= query)
    if left >= 0:
        seen = seen & (key >= query - left)
    return seen & (key <= query + right) if right >= 0 else seen


def _fitted(mask: Tensor, keys: int) -> Tensor:
    """A mask that ends before the keys do hides the rest of them."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    rest = mask.new_zeros(*mask.shape[:-1], missing)
    return torch.cat([mask, rest if mask.dtype == torch.bool else rest - math.inf], -1)


@operator("Attention")
def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_key: Tensor | None = None,
               past_value: Tensor | None = None, filled: Tensor | None = None, *, is_causal: int = 0,
               kv_num_heads: int = 0, q_num_heads: int = 0, qk_matmul_output_mode: int = 0, scale: float | None = None,
               softcap: float = 0.0, softmax_precision: int = 0, left_window_size: int = -1,
               right_window_size: int = -1) -> tuple[Tensor, ...]:  # fmt: skip
    """softmax(q kᵀ · scale + mask) v, with grouped heads, a cache of keys and a soft cap where the node has them."""
    flat = q.dim() == 3
    q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    stages = [scores]
    capped = softcap * torch.tanh(scores / softcap) if softcap else scores
    stages.append(capped)
    biased = capped
    if mask is not None:
        mask = _fitted(mask, scores.shape[-1])
        biased = biased.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else biased + mask
    before = torch.tensor([0 if past_key is None else past_key.shape[2]], device=q.device)
    offset = filled - q.shape[2] if filled is not None and past_key is None else before
    seen = _frame(scores, offset, bool(is_causal), left_window_size, right_window_size)
    if filled is not None:
        seen = seen & (torch.arange(scores.shape[-1], device=q.device) < filled.reshape(-1, 1, 1, 1))
    biased = biased.masked_fill(~seen, -math.inf)
    weights = _masked_softmax(biased)
    stages += [biased, weights]
    y = weights @ v
    y = y.transpose(1, 2).flatten(2) if flat else y
    return y, *present, stages[qk_matmul_output_mode]


@operator("RotaryEmbedding")
def _rotary(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None, *, interleaved: int = 0,
            num_heads: int = 0, rotary_embedding_dim: int = 0) -> Tensor:  # fmt: skip
    """Each pair of features turned by an angle that grows with its position."""
    heads = _heads(x, num_heads)
    size = rotary_embedding_dim or heads.shape[-1]
    turned, rest = heads[..., :size], heads[..., size:]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos[..., : size // 2].unsqueeze(1), sin[..., : size // 2].unsqueeze(1)
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned.chunk(2, -1)
    real, imaginary = cos * a - sin * b, sin * a + cos * b
    pair = torch.stack([real, imaginary], -1).flatten(-2) if interleaved else torch.cat([real, imaginary], -1)
    y = torch.cat([pair, rest], -1)
    return y if x.dim() == 4 else y.transpose(1, 2).reshape(x.shape)


# what onnxruntime's optimiser writes when it saves a fused graph


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
