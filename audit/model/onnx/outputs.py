"""From the file's output to the scores beneath it: the final layer taken off, one row [n, C] per sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from audit.model.canon import Shape, head_note, scores_per_position
from audit.model.canon.heads import Step, find_head
from audit.model.onnx.graph import (
    TensorType,
    add_constant,
    attributes,
    bypass,
    constants,
    fresh,
    infer_types,
    opset,
    producers,
    prune,
    set_nodes,
    tensor_type,
    to_array,
)

STEPS = {
    **dict.fromkeys(("Identity", "Cast", "Dropout"), "copy"),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), "reshape"),
    **{
        "Softmax": "softmax",
        "LogSoftmax": "log_softmax",
        "Sigmoid": "sigmoid",
        "Tanh": "tanh",
        "Exp": "exp",
        "Log": "log",
    },
    **{"Neg": "neg", "Reciprocal": "reciprocal", "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"},
    **{"Max": "maximum", "Expand": "expand", "Concat": "concat", "Normalizer": "normalize"},
    **{"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min"},
    "ReduceLogSumExp": "logsumexp",
}
"""What the rules for final layers call ONNX's operators."""


@dataclass(frozen=True)
class OnnxTail:
    """An ONNX graph as the rules for final layers ask about it; its values are names."""

    makers: Mapping[str, NodeProto]
    known: Mapping[str, TensorProto]
    types: Mapping[str, TensorType]
    opset: int

    @classmethod
    def of(cls, model: ModelProto) -> OnnxTail:
        """The view of a model."""
        return cls(producers(model.graph), constants(model.graph), infer_types(model), opset(model))

    def step(self, value: str) -> Step | None:
        """The node that makes a value."""
        node = self.makers.get(value)
        op = STEPS.get(node.op_type) if node is not None else None
        if node is None or op is None or (op == "normalize" and attributes(node).get("norm") != "L1"):
            return None
        return Step(op, tuple(node.input), self._axes(node, op))

    def shape(self, value: str) -> Shape | None:
        """The shape, as far as it is known."""
        return self.types.get(value, TensorType()).shape

    def constant(self, value: str) -> float | None:
        """The number that an initializer is throughout."""
        array = to_array(self.known[value]) if value in self.known else np.empty(0)
        return float(array.flat[0]) if array.size and np.all(array == array.flat[0]) else None

    def _axes(self, node: NodeProto, op: str) -> tuple[int, ...] | None:
        """Reductions have their axes in an attribute or an input; an early softmax runs over all from `axis` on."""
        options = attributes(node)
        if op in ("softmax", "log_softmax"):
            early, shape = self.opset < 13, self.shape(node.input[0])
            axis = options.get("axis", 1 if early else -1)
            return (axis,) if not early or shape is None else tuple(range(axis % len(shape), len(shape)))
        if op == "concat":
            return (options["axis"],)
        axes = options.get("axes")
        if axes is None and len(node.input) > 1 and node.input[1] in self.known:
            axes = to_array(self.known[node.input[1]]).reshape(-1).tolist()
        return None if axes is None else tuple(axes)


@dataclass(frozen=True)
class Taken:
    """What was taken off an output, and what it holds."""

    head: str  # the final layer's name in HEADS
    notes: tuple[str, ...]  # sentences that say what was done
    per_position: int | None  # C of an output [n, T, C]


def take_off_head(path: Path, model: ModelProto) -> Taken:
    """Let the graph end in one row of scores for each sample."""
    output = model.graph.output[0].name
    unstacked = _unstack(model, output)
    tail = OnnxTail.of(model)
    head = find_head(tail, output)
    if head is not None:
        two_axes = len(tail.shape(head.scores) or ()) == 2
        bypass(model.graph, output if two_axes else head.made, head.scores)
    kind = infer_types(model).get(output, TensorType())
    per_position = scores_per_position(path, output, kind.shape)
    _flatten(model, kind)
    if head is None:
        return Taken("none", unstacked, per_position)
    return Taken(head.name, (*unstacked, head_note(output, head.name)), per_position)


def _unstack(model: ModelProto, output: str) -> tuple[str, ...]:
    """Undo a final Reshape to one column, which skl2onnx writes behind several targets: [n, C] became [n C, 1]."""
    tail = OnnxTail.of(model)
    column = tail.makers.get(output)
    if column is None or column.op_type != "Reshape" or column.input[1] not in tail.known:
        return ()
    shape, rows = to_array(tail.known[column.input[1]]).tolist(), tail.shape(column.input[0])
    if shape != [-1, 1] or rows is None or len(rows) != 2 or rows[1] in (None, 1):
        return ()
    bypass(model.graph, output, column.input[0])
    return (f"The output {output!r} stacks the {rows[1]} answers of a sample in one column; they were put in a row.",)


def _flatten(model: ModelProto, kind: TensorType) -> None:
    """[n] becomes [n, 1], [n, C, 1, 1] becomes [n, C], and [n, T, C] becomes [n, T·C]; of a lone sample, [C] [1, C]."""
    lone = (tensor_type(model.graph.input[0]).shape or (None,))[0] == 1
    output = model.graph.output[0].name
    rank = len(kind.shape) if kind.shape is not None else None
    if rank != 2:
        inner = _step_behind(model, output, "unflattened")
        if rank is None or rank > 2:
            node = helper.make_node("Flatten", [inner], [output], axis=1)
        else:
            rows = np.array([1, -1] if lone else [-1, 1], dtype=np.int64)
            shape = add_constant(model.graph, fresh(model.graph, "rows"), rows)
            node = helper.make_node("Reshape", [inner, shape], [output])
        model.graph.node.append(node)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    prune(model.graph)


def _step_behind(model: ModelProto, output: str, stem: str) -> str:
    """Give the value of the output a name of its own, so that a node can come between."""
    graph = model.graph
    inner = fresh(graph, f"{output}/{stem}")
    nodes = list(graph.node)
    for node in nodes:
        node.input[:] = [inner if name == output else name for name in node.input]
        node.output[:] = [inner if name == output else name for name in node.output]
    set_nodes(graph, nodes)
    return inner
