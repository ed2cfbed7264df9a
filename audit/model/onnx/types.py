"""Element types and shapes of the values in a graph, as far as they can be told without running it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from audit.errors import ModelError
from audit.model.onnx.graph import Array, opset, subgraphs, to_array, walk, with_graph

SMALL = 1024
"""Elements up to which an initializer may matter to shape inference: shapes, axes and repeats are never longer."""

SCALINGS = ("Scaler", "Normalizer")
"""Operators of ai.onnx.ml that keep the shape and give floats."""
REPLACEMENTS = ("Imputer", "Binarizer")
"""… and that keep the number type, too."""
ACTIVATIONS = (
    "Gelu",
    "FastGelu",
    "QuickGelu",
    "BiasGelu",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)
"""Operators that keep the shape of their first input, which ONNX shape inference has no rule for."""


@dataclass(frozen=True)
class TensorType:
    """Element type (a `TensorProto` number, 0: unknown) and shape (None: unknown; a free size is None)."""

    element: int = 0
    shape: tuple[int | None, ...] | None = None


def tensor_type(value: ValueInfoProto) -> TensorType:
    """What a declaration says about a value; sequences and maps have element type 0."""
    declared = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not declared.HasField("shape"):
        return TensorType(declared.elem_type)
    return TensorType(declared.elem_type, tuple(_size(dim) for dim in declared.shape.dim))


def _size(dim: Any) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None


def infer_types(model: ModelProto) -> dict[str, TensorType]:
    """Types of all values, by ONNX shape inference over the graph without its heavy weights."""
    light = skeleton(model)
    # a graph that inference rejects may still run; then only what the file declares is known
    with suppress(onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        light = onnx.shape_inference.infer_shapes(light, data_prop=True)
    graph = light.graph
    types = {tensor.name: TensorType(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    return types | {value.name: tensor_type(value) for value in (*graph.value_info, *graph.input, *graph.output)}


def infer_node(
    model: ModelProto, node: NodeProto, types: Mapping[str, TensorType], known: Mapping[str, TensorProto]
) -> dict[str, TensorType]:
    """Types of one node's outputs from those of its inputs; unknown where ONNX has no rule."""
    known_node = _inferable(node)
    inputs = {name: types.get(name, TensorType()) for name in known_node.input if name}
    try:
        schema = onnx.defs.get_schema(known_node.op_type, opset(model, known_node.domain), known_node.domain)
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            known_node,
            {name: helper.make_tensor_type_proto(kind.element, kind.shape) for name, kind in inputs.items()},
            {name: known[name] for name in inputs if name in known and _elements(known[name]) <= SMALL},
            opset_imports=list(model.opset_import),
            ir_version=model.ir_version,
        )
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        found = {}
    return {name: tensor_type(ValueInfoProto(name=name, type=found.get(name))) for name in node.output if name}


def _elements(tensor: TensorProto) -> float:
    return float(np.prod(tensor.dims, dtype=float))


def skeleton(model: ModelProto) -> ModelProto:
    """The model with its large initializers turned into inputs of the same type: cheap to copy and to send around."""
    graph = GraphProto(name=model.graph.name or "graph")
    graph.node.extend(_inferable(node) for node in model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    declared = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if _elements(tensor) <= SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return with_graph(model, graph)


def _inferable(node: NodeProto) -> NodeProto:
    """A node that shape inference knows, where it does not know one that keeps the shape."""
    if node.op_type in SCALINGS and node.domain == "ai.onnx.ml":
        return helper.make_node("Cast", node.input[:1], node.output[:1], to=TensorProto.FLOAT)
    replaces = node.op_type in REPLACEMENTS and node.domain == "ai.onnx.ml"
    if replaces or (node.op_type in ACTIVATIONS and node.domain == "com.microsoft"):
        return helper.make_node("Identity", node.input[:1], node.output[:1])
    return node


# What an ONNX file asks for, counted before any of it is done: functions that call each other, loops, tensors.


MOST_NODES = 40_000
"""Once functions are put in their callers' place; the largest networks have some ten thousand."""
MOST_TURNS = 10**4
"""Of a loop that is run once to see what it gives."""
COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
PACKED: dict[int, int] = {TensorProto.UINT4: 2, TensorProto.INT4: 2}  # numbers in one byte
LOOPS = ("Loop", "Scan", "SequenceMap")


def check_size(path: Path, model: ModelProto) -> None:
    """Refuses a graph of more operators than can be converted soon, its functions put in their callers' place."""
    bodies = {(one.domain, one.name): list(one.node) for one in model.functions}
    known: dict[tuple[str, str], int] = {}

    def nodes_of(nodes: list[NodeProto]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(nodes_of(list(body.node)) for body in subgraphs(node))
            total += expanded((node.domain, node.op_type)) if (node.domain, node.op_type) in bodies else 0
        return min(total, MOST_NODES + 1)

    def expanded(name: tuple[str, str]) -> int:
        if name not in known:
            known[name] = MOST_NODES + 1  # of one that calls itself
            known[name] = nodes_of(bodies[name])
        return known[name]

    if nodes_of(list(model.graph.node)) > MOST_NODES:
        raise ModelError(
            f"{path}: runs more than {MOST_NODES:,} operators, those of its functions and branches included; export it "
            "without unrolled loops."
        )


def check_tensor(path: Path, tensor: TensorProto) -> None:
    """Refuses a tensor whose bytes are not those of its shape, and numbers that the audit would have to cut."""
    if tensor.data_type in COMPLEX:
        raise ModelError(f"{path}: the weights of {tensor.name!r} are complex numbers; audit a model with real ones.")
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{path}: the weights of {tensor.name!r} have a negative size; export the model again.")
    if not tensor.HasField("raw_data") or tensor.data_type == TensorProto.STRING:
        return
    count = math.prod(tensor.dims)
    if tensor.data_type in PACKED:
        wanted = -(-count // PACKED[tensor.data_type])
    elif tensor.data_type in helper.get_all_tensor_dtypes():
        wanted = count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    else:
        raise ModelError(f"{path}: the weights of {tensor.name!r} are of no type that exists; export the model again.")
    if len(tensor.raw_data) != wanted:
        raise ModelError(
            f"{path}: the weights of {tensor.name!r} are {len(tensor.raw_data)} bytes where their shape asks for "
            f"{wanted}; export or copy the model again."
        )


def is_short(node: NodeProto, known: Mapping[str, TensorProto]) -> bool:
    """Whether a node of constants ends soon: a loop says beforehand how often it turns, and holds no other."""
    if not any(inner.op_type in LOOPS for inner in (node, *(one for body in subgraphs(node) for one in walk(body)))):
        return True
    inside = [one for body in subgraphs(node) for one in walk(body)]
    if node.op_type != "Loop" or any(one.op_type in LOOPS for one in inside):
        return False
    count: Array | None = to_array(known[node.input[0]]) if node.input and node.input[0] in known else None
    return count is not None and count.size == 1 and int(count.reshape(-1)[0]) <= MOST_TURNS
