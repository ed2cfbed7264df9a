"""Operators rewritten so that a graph can be differentiated twice, in any precision, or refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from audit.errors import ModelError
from audit.model.torch.graph import Node, WorkingGraph, arguments, aten

ASSERTIONS = (
    aten._assert_tensor_metadata.default,
    aten._assert_scalar.default,
    aten._assert_async.msg,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)
COPIES = (
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.contiguous.default,
)


UNFILLED = (
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.empty_permuted.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)
"""Memory as it was found."""
DROPOUTS = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)
BATCH_STATISTICS = (
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q kᵀ · scale + mask) v: the fused kernels have no second derivative."""
    if enable_gqa:
        k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
    logits = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(-1) @ v


def hard_sigmoid(x: Tensor) -> Tensor:
    """clamp(x + 3, 0, 6) / 6: the kernel's derivative has no derivative."""
    return (x + 3).clamp(0, 6) / 6


def hard_swish(x: Tensor) -> Tensor:
    """The product x · hard_sigmoid(x)."""
    return x * hard_sigmoid(x)


FORMULAS: dict[Any, Any] = {
    aten.scaled_dot_product_attention.default: attention,
    aten.hardsigmoid.default: hard_sigmoid,
    aten.hardswish.default: hard_swish,
}


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    in_weight: Tensor,
    in_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    *rest: Any,
) -> Any:
    """aten::_native_multi_head_attention on (n, tokens, width), written with the layers it hides."""
    if mask is not None or query is not key or key is not value:
        return NotImplemented
    q, k, v = torch.unflatten(F.linear(query, in_weight, in_bias), -1, (3, heads, width // heads)).unbind(-3)
    mixed = attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).flatten(2)
    return F.linear(mixed, out_weight, out_bias), query.new_empty(0)


def fused_encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    in_weight: Tensor,
    in_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm1: Tensor,
    norm1_bias: Tensor,
    norm2: Tensor,
    norm2_bias: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    mask: Tensor | None = None,
    *rest: Any,
) -> Any:
    """aten::_transformer_encoder_layer_fwd, written with the layers it hides."""
    if mask is not None:
        return NotImplemented

    def attend(h: Tensor) -> Tensor:
        mixed: Tensor = fused_attention(h, h, h, width, heads, in_weight, in_bias, out_weight, out_bias)[0]
        return mixed

    def feed_forward(h: Tensor) -> Tensor:
        h = F.linear(h, weight1, bias1)
        return F.linear(F.gelu(h) if use_gelu else F.relu(h), weight2, bias2)

    def normed(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(h, (width,), weight, bias, eps)

    if norm_first:
        x = x + attend(normed(x, norm1, norm1_bias))
        return x + feed_forward(normed(x, norm2, norm2_bias))
    x = normed(x + attend(x), norm1, norm1_bias)
    return normed(x + feed_forward(x), norm2, norm2_bias)


DECOMPOSITIONS: dict[Any, Any] = {
    aten._native_multi_head_attention.default: fused_attention,
    aten._transformer_encoder_layer_fwd.default: fused_encoder_layer,
}
"""The fused fast path of nn.TransformerEncoder, which a script traced under no_grad contains."""


def tidy(work: WorkingGraph, path: Path) -> None:
    """Takes out assertions and copies, writes kernels as formulas, and refuses what was exported in training mode."""
    for node in work.calls(*ASSERTIONS):
        work.graph.erase_node(node)
    for node in work.calls(*COPIES):
        if node.kwargs.get("memory_format") is None and len(node.args) == 1:
            work.bypass(node, node.all_input_nodes[0])
    for node in work.calls(aten.view.default, aten._unsafe_view.default):
        node.target = aten.reshape.default  # a view relies on strides, which a formula may lay out differently
    for node in work.calls(*FORMULAS):
        work.replace(node, FORMULAS[node.target], tuple(arguments(node).values()))
    for node in work.calls(*UNFILLED):
        _fill(work, node)
    _refuse_training(work, path)
    for node in work.calls(*DROPOUTS):
        work.bypass(node, node.all_input_nodes[0])
    _refuse_fused(work, path)


def _fill(work: WorkingGraph, node: Node) -> None:
    """With NaN, which all but what is written over shows: the numbers of a report never come from foreign memory."""
    if not node.meta["val"].dtype.is_floating_point:
        return
    with work.graph.inserting_after(node):
        filled = work.graph.call_function(aten.full_like.default, (node, math.nan))
    filled.meta = dict(node.meta)
    node.replace_all_uses_with(filled, delete_user_cb=lambda user: user is not filled)


def _refuse_training(work: WorkingGraph, path: Path) -> None:
    dropout = [node for node in work.calls(*DROPOUTS) if arguments(node)["train"]]
    dropout += work.calls(aten.native_dropout.default)
    norms = [node for node in work.calls(aten.batch_norm.default) if arguments(node)["training"]]
    norms += work.calls(*BATCH_STATISTICS)
    if dropout or norms:
        what = "dropout is on" if dropout else "BatchNorm uses the statistics of the batch"
        raise ModelError(f"{path}: was exported in training mode ({what}); call model.eval() and export it again.")


def _refuse_fused(work: WorkingGraph, path: Path) -> None:
    if work.calls(*DECOMPOSITIONS):
        raise ModelError(
            f"{path}: was exported with the fused fast path of nn.TransformerEncoder, which hides its dense layers; "
            "export it again after torch.backends.mha.set_fastpath_enabled(False)."
        )


# `.to(torch.float64)` must reach the float types and devices that are written into a graph. An exporter writes
# `zeros(…, dtype=float32, device=cpu)`. One float of the network itself, the anchor, is read instead: its dtype and its
# device are those of the weights at the time of the call.

ANCHOR = "float_anchor"
CREATORS = (
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.empty.memory_format,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.linspace.default,
    aten.scalar_tensor.default,
    aten.eye.default,
)
"""Operators that make a float tensor of the default type where no dtype is given."""


def follow_weights(work: WorkingGraph, dtype: torch.dtype) -> None:
    """Replaces every float type and device in the graph by those of an anchor tensor of type `dtype`."""
    work.tensors[ANCHOR] = torch.zeros((), dtype=dtype)
    first = next(node for node in work.graph.nodes if node.op != "placeholder")
    with work.graph.inserting_before(first):
        anchor = work.graph.get_attr(ANCHOR)
        kind = work.graph.call_function(getattr, (anchor, "dtype"))
        place = work.graph.call_function(getattr, (anchor, "device"))
    for node in list(work.graph.nodes):
        if node.op != "call_function" or node in (kind, place) or node.target is aten.view.dtype:
            continue  # a view of the same bits in another type means that type
        _name_float_type(node)
        _widen_integers(work, node, kind)
        node.args, node.kwargs = (_followed(part, kind, place) for part in (node.args, node.kwargs))


def _followed(argument: Any, kind: Node, place: Node) -> Any:
    def follow(value: Any) -> Any:
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return kind
        return place if isinstance(value, torch.device) else value

    return fx.node.map_aggregate(argument, follow)


def _name_float_type(node: Node) -> None:
    """zeros(3) makes floats of the default type: say so, for the type to be replaced."""
    value = node.meta.get("val")
    if node.target in CREATORS and node.kwargs.get("dtype") is None and value is not None and _is_float(value):
        node.kwargs = {**node.kwargs, "dtype": value.dtype}


def _widen_integers(work: WorkingGraph, node: Node, kind: Node) -> None:
    """Integers that become floats on the way (n / 3, sigmoid(n)) become floats of the right width before."""
    sources = [source for source in node.all_input_nodes if isinstance(source.meta.get("val"), Tensor)]
    if not sources or not _is_float(node.meta.get("val")) or any(_is_float(source.meta["val"]) for source in sources):
        return
    if any(isinstance(value, torch.dtype) for value in (*node.args, *node.kwargs.values())):
        return
    for source in sources:
        if source.meta["val"].dtype != torch.bool:
            with work.graph.inserting_before(node):
                node.replace_input_with(source, work.graph.call_function(aten.to.dtype, (source, kind)))


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
