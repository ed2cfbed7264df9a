"""Makes a graph follow its weights: `.to(torch.float64)` must reach the float types and devices written into it.

An exporter writes `zeros(…, dtype=float32, device=cpu)`. One float of the network itself, the anchor, is read instead:
its dtype and its device are those of the weights at the time of the call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from audit.model.torch.graph import Draft, Node, aten

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


def follow_weights(draft: Draft, dtype: torch.dtype) -> None:
    """Replaces every float type and device in the graph by those of an anchor tensor of type `dtype`."""
    draft.tensors[ANCHOR] = torch.zeros((), dtype=dtype)
    first = next(node for node in draft.graph.nodes if node.op != "placeholder")
    with draft.graph.inserting_before(first):
        anchor = draft.graph.get_attr(ANCHOR)
        kind = draft.graph.call_function(getattr, (anchor, "dtype"))
        place = draft.graph.call_function(getattr, (anchor, "device"))
    for node in list(draft.graph.nodes):
        if node.op != "call_function" or node in (kind, place):
            continue
        _name_float_type(node)
        _widen_integers(draft, node, kind)
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


def _widen_integers(draft: Draft, node: Node, kind: Node) -> None:
    """Integers that become floats on the way (n / 3, sigmoid(n)) become floats of the right width before."""
    sources = [source for source in node.all_input_nodes if isinstance(source.meta.get("val"), Tensor)]
    if not sources or not _is_float(node.meta.get("val")) or any(_is_float(source.meta["val"]) for source in sources):
        return
    if any(isinstance(value, torch.dtype) for value in (*node.args, *node.kwargs.values())):
        return
    for source in sources:
        if source.meta["val"].dtype != torch.bool:
            with draft.graph.inserting_before(node):
                node.replace_input_with(source, draft.graph.call_function(aten.to.dtype, (source, kind)))


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
