"""Looking things up in an ONNX graph, and the few edits that every rewriting is made of.

A step takes a `ModelProto`, changes that very graph and returns nothing; `simplified` works on a copy of the user's.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
    numpy_helper,
)

from audit.model.canon.dense import numbered, without_wrappers

Array = NDArray[Any]
SCOPES = "pkg.torch.onnx.name_scopes"
"""Where the newer PyTorch exporter notes the modules around a node."""
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


def node_scope(node: NodeProto) -> str:
    """The module path of a node: from the newer exporter's notes, or a name such as /blocks/blocks.0/fc1/MatMul."""
    for entry in node.metadata_props:
        if entry.key == SCOPES:
            return _last_scope(entry.value)
    parts = [part for part in node.name.split("/")[:-1] if part]
    if node.name.startswith("/"):
        return _merged(parts)
    return without_wrappers("/".join(parts))


def _last_scope(text: str) -> str:
    try:
        scopes = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return ""
    return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) >= 2 else ""


def _merged(parts: list[str]) -> str:
    """The older exporter repeats the parent in the child's name: /blocks/blocks.0/fc1 is blocks.0.fc1."""
    names: list[str] = []
    for part in parts:
        if names and part.startswith(names[-1] + "."):
            names[-1] = part
        else:
            names.append(part)
    return ".".join(names)
