"""Looking things up in an ONNX graph, its values' types, and the few edits that every rewriting is made of.

A step takes a `ModelProto`, changes that very graph and returns nothing; `simplified` works on a copy of the user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from audit.model.canon import numbered

Array = NDArray[Any]
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def opset(model: ModelProto, domain: str = "") -> int:
    """Version of an operator set that the file declares; 0 where it does not."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return max((entry.version for entry in model.opset_import if entry.domain in names), default=0)


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes by name; text as str."""
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The bodies of If, Loop and Scan."""
    return [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs) if graph.output]


def walk(graph: GraphProto) -> Iterator[NodeProto]:
    """Every node, those in bodies included."""
    for node in graph.node:
        yield node
        for body in subgraphs(node):
            yield from walk(body)


def reads(node: NodeProto) -> set[str]:
    """Every name a node needs, those its bodies take from outside included."""
    needed = {name for name in node.input if name}
    for body in subgraphs(node):
        inside = {tensor.name for tensor in body.initializer} | {value.name for value in body.input}
        for inner in body.node:
            needed |= reads(inner) - inside
            inside |= set(inner.output)
        needed |= {value.name for value in body.output} - inside
    return needed


def producers(graph: GraphProto) -> dict[str, NodeProto]:
    """Which node makes a value."""
    return {name: node for node in graph.node for name in node.output if name}


def uses(graph: GraphProto) -> Counter[str]:
    """How many nodes and graph outputs read a value."""
    counts = Counter(name for node in graph.node for name in reads(node))
    counts.update(value.name for value in graph.output)
    return counts


def constants(graph: GraphProto) -> dict[str, TensorProto]:
    """The initializers by name."""
    return {tensor.name: tensor for tensor in graph.initializer}


def to_array(tensor: TensorProto) -> Array:
    """The values of an initializer."""
    array: Array = numpy_helper.to_array(tensor)
    return array


def sparse_to_array(sparse: SparseTensorProto) -> Array:
    """A sparse constant with its zeros; its indices are positions in the flat array, or coordinates."""
    values, indices = to_array(sparse.values), to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    dense.flat[indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)] = values
    return dense


def add_constant(graph: GraphProto, name: str, array: Array, origin: str = "") -> str:
    """A new initializer; `origin` is the parameter that it was made from, kept in its doc string for naming layers."""
    tensor = numpy_helper.from_array(array, name)
    tensor.doc_string = origin
    graph.initializer.append(tensor)
    return name


def fresh(graph: GraphProto, stem: str) -> str:
    """A value name that nothing in the graph bears yet."""
    taken = {name for node in walk(graph) for name in (*node.input, *node.output)}
    taken |= {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    return next(name for name in numbered(stem) if name not in taken)


def set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Replace the node list."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def rename_reads(nodes: Iterable[NodeProto], renamed: Mapping[str, str]) -> None:
    """Let every reader of an old name read the new one, in bodies too."""
    for node in nodes:
        for position, name in enumerate(node.input):
            if name in renamed:
                node.input[position] = renamed[name]
        for body in subgraphs(node):
            rename_reads(body.node, renamed)
            for value in body.output:
                value.name = renamed.get(value.name, value.name)


def bypass(graph: GraphProto, value: str, source: str) -> None:
    """Let everything that reads `value`, the graph's outputs included, get `source` instead."""
    position = next(i for i, node in enumerate(graph.node) if value in node.output)
    node = graph.node[position]
    node.output[list(node.output).index(value)] = ""
    graph.node.insert(position + 1, helper.make_node("Identity", [source], [value]))
    prune(graph)


def skip_final_identities(graph: GraphProto) -> None:
    """Let the graph end in what its last Identity hands on."""
    makers, end = producers(graph), graph.output[0]
    while end.name in makers and makers[end.name].op_type == "Identity":
        end.name = makers[end.name].input[0]
    prune(graph)


def prune(graph: GraphProto) -> None:
    """Drop nodes and initializers that no output depends on."""
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed |= reads(node)
    if len(kept) < len(graph.node):
        set_nodes(graph, reversed(kept))
    for position in reversed(range(len(graph.initializer))):
        if graph.initializer[position].name not in needed:
            del graph.initializer[position]


def with_graph(model: ModelProto, graph: GraphProto) -> ModelProto:
    """Another graph under the same versions."""
    other = ModelProto(ir_version=model.ir_version, functions=model.functions, opset_import=model.opset_import)
    other.graph.CopyFrom(graph)
    return other


# The types of its values, as far as they can be told without running it.


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


# Whether constants can be evaluated soon: a loop may turn without end.


MOST_TURNS = 10**4  # of a loop that is run once to see what it gives
LOOPS = ("Loop", "Scan", "SequenceMap")


def is_short(node: NodeProto, known: Mapping[str, TensorProto]) -> bool:
    """Whether a node of constants ends soon: a loop says beforehand how often it turns, and holds no other."""
    if not any(inner.op_type in LOOPS for inner in (node, *(one for body in subgraphs(node) for one in walk(body)))):
        return True
    inside = [one for body in subgraphs(node) for one in walk(body)]
    if node.op_type != "Loop" or any(one.op_type in LOOPS for one in inside):
        return False
    count: Array | None = to_array(known[node.input[0]]) if node.input and node.input[0] in known else None
    return count is not None and count.size == 1 and int(count.reshape(-1)[0]) <= MOST_TURNS
