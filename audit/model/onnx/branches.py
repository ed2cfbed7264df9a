"""Branches that a constant decides, and states that say nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from audit.model.onnx.graph import attributes, constants, fresh, producers, rename_reads, set_nodes, to_array


def inline_branches(graph: GraphProto) -> bool:
    """Put the taken branch of every decided `If` in its place."""
    known = constants(graph)
    for position, node in enumerate(graph.node):
        if node.op_type == "If" and node.input[0] in known:
            taken = "then_branch" if to_array(known[node.input[0]]).any() else "else_branch"
            body = next(attribute.g for attribute in node.attribute if attribute.name == taken)
            _splice(graph, position, body)
            return True
    return False


def _splice(graph: GraphProto, position: int, body: GraphProto) -> None:
    """Replace an If by one of its bodies, whose own names are made unique first."""
    node = graph.node[position]
    own = [tensor.name for tensor in body.initializer] + [name for inner in body.node for name in inner.output if name]
    renamed = {name: fresh(graph, f"{node.name or 'If'}/{name}") for name in own}
    nodes = list(body.node)
    rename_reads(nodes, renamed)
    for inner in nodes:
        inner.output[:] = [renamed.get(name, name) for name in inner.output]
    for tensor in body.initializer:
        graph.initializer.append(tensor)
        graph.initializer[-1].name = renamed[tensor.name]
    ends = [
        helper.make_node("Identity", [renamed.get(value.name, value.name)], [name])
        for value, name in zip(body.output, node.output, strict=True)
    ]
    set_nodes(graph, [*graph.node[:position], *nodes, *ends, *graph.node[position + 1 :]])


def forget_zero_states(graph: GraphProto) -> None:
    """A recurrent layer starts from zero by default; an explicit zero state only fixes the batch size."""
    known, makers = constants(graph), producers(graph)
    for node in graph.node:
        if node.op_type in ("LSTM", "GRU", "RNN"):
            for position in range(5, min(len(node.input), 7)):
                if _is_zero(node.input[position], known, makers):
                    node.input[position] = ""


def _is_zero(name: str, known: Mapping[str, TensorProto], makers: Mapping[str, NodeProto]) -> bool:
    if name in known:
        return not np.any(to_array(known[name]))
    maker = makers.get(name)
    if maker is None or maker.op_type not in ("Expand", "ConstantOfShape"):
        return False
    if maker.op_type == "Expand":
        return _is_zero(maker.input[0], known, makers)
    value = attributes(maker).get("value")
    return value is None or not np.any(to_array(value))
