"""Scaled dot-product attention and rotary positions, by formula: the fused kernels have no second derivative."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from audit.model.onnx.ops.registry import operator


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
