"""A graph that begins with preprocessing, as skl2onnx writes pipelines, cut in two: what prepares, and the network.

The prefix ends behind the last operator without a gradient (encoders, imputers, all that works on text), or where the
columns of a table, an input each, are put side by side: the audit reads the network from there, and onnxruntime runs
the prefix once over the samples as they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from audit.model.onnx.graph import (
    FLOATS,
    TensorType,
    attributes,
    constants,
    infer_types,
    producers,
    prune,
    reads,
    set_nodes,
    tensor_type,
    to_array,
    with_graph,
)

WITHOUT_GRADIENT = re.compile(
    r"\w*String\w*|Tokenizer|RegexFullMatch|TfIdfVectorizer|CategoryMapper|DictVectorizer|LabelEncoder|OneHotEncoder"
    r"|Imputer|Binarizer|TreeEnsemble\w*"
)
SIZES = ("Shape", "Size")
COLUMNS = (*FLOATS, TensorProto.STRING, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
SAME_COLUMNS = ("Cast", "Identity", "Imputer", "Scaler", "Normalizer", "Binarizer", "LabelEncoder")
ARITHMETIC = ("Add", "Sub", "Mul", "Div")

Column = tuple[int, str]
"""Which raw column a feature is made from, and what is put behind that column's name: "=Oslo" for a category."""


@dataclass(frozen=True)
class Prefix:
    """The first part of a graph: from the file's inputs to the network's input."""

    model: ModelProto
    value: str  # what it computes, [n, width]
    width: int | None
    columns: tuple[Column, ...] | None  # of each feature; None where the graph does not tell


def split_off(model: ModelProto) -> Prefix | None:
    """Cuts the preprocessing off `model`, whose only input then is the prepared one; None where there is none."""
    graph = model.graph
    starts = [node for node in graph.node if WITHOUT_GRADIENT.fullmatch(node.op_type)]
    if not are_columns(graph) or not (starts or len(graph.input) > 1):
        return None
    types = infer_types(model)
    found = _cut(graph, types)
    if found is None:
        return None
    value, behind = found
    prefix = with_graph(model, graph)
    del prefix.graph.output[:]
    element = types[value].element
    prefix.graph.output.append(helper.make_tensor_value_info(value, element, None))
    prune(prefix.graph)
    columns = _Columns(prefix.graph).of(value)
    if not starts and columns is None:
        return None  # dense layers or embeddings of single inputs: a part of the network
    width = _width(graph, behind, value) or (len(columns) if columns else None)
    _begin_at(graph, helper.make_tensor_value_info(value, element, ["n", width]), behind)
    return Prefix(prefix, value, width, columns if columns and len(columns) == width else None)


def are_columns(graph: GraphProto) -> bool:
    """Whether the inputs are columns of a table: one matrix [n, d], or one input [n, 1] for each column."""
    kinds = [tensor_type(value) for value in graph.input]
    tables = all(kind.element in COLUMNS and len(kind.shape or ()) == 2 for kind in kinds)
    widths = [kind.shape[1] for kind in kinds if kind.shape] if tables else []
    return tables and (widths == [1] * len(kinds) or (len(kinds) == 1 and widths[0] is not None))


def _cut(graph: GraphProto, types: Mapping[str, TensorType]) -> tuple[str, list[NodeProto]] | None:
    """The first value [n, k] that all samples pass through with nothing but gradients behind it; and what is behind."""
    depends = _data_values(graph)
    for node in graph.node:
        for value in node.output:
            kind = types.get(value, TensorType())
            if value not in depends or kind.element not in FLOATS or len(kind.shape or (0, 0)) != 2:
                continue
            behind = _behind(graph, value)
            if behind is not None and not any(_without_gradient(one, types, depends) for one in behind):
                return value, behind
    return None


def _data_values(graph: GraphProto) -> set[str]:
    """The values that depend on the samples' numbers, not merely on how many they are."""
    depends = {value.name for value in graph.input}
    for node in graph.node:
        if node.op_type not in SIZES and depends & reads(node):
            depends.update(node.output)
    return depends


def _without_gradient(node: NodeProto, types: Mapping[str, TensorType], depends: set[str]) -> bool:
    discrete = (name in depends and types.get(name, TensorType()).element not in (0, *FLOATS) for name in node.output)
    return bool(WITHOUT_GRADIENT.fullmatch(node.op_type)) or any(discrete)


def _behind(graph: GraphProto, value: str) -> list[NodeProto] | None:
    """The nodes between a value and the output, in order; None where an input goes round the value."""
    inputs = {one.name for one in graph.input}
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    waiting, needed = [graph.output[0].name], set[int]()
    if value in waiting:
        return None
    while waiting:
        name = waiting.pop()
        if name in inputs:
            return None
        if name != value and name in makers and makers[name] not in needed:
            needed.add(makers[name])
            waiting.extend(reads(graph.node[makers[name]]))
    return [graph.node[place] for place in sorted(needed)]


def _begin_at(graph: GraphProto, start: ValueInfoProto, behind: list[NodeProto]) -> None:
    set_nodes(graph, behind)
    del graph.input[:]
    graph.input.append(start)
    prune(graph)


def _width(graph: GraphProto, behind: list[NodeProto], value: str) -> int | None:
    """How many features the first product behind the value takes."""
    known, same = constants(graph), {value}
    for node in behind:
        if not same.intersection(node.input):
            continue
        if node.op_type in ("MatMul", "Gemm") and node.input[0] in same and node.input[1] in known:
            sizes = list(known[node.input[1]].dims)
            return int(sizes[1] if attributes(node).get("transB") else sizes[0])
        if node.op_type in (*SAME_COLUMNS, *ARITHMETIC):
            same.update(node.output)
    return None


class _Columns:
    """From which raw columns the features of a prefix are made, as far as its operators are told apart here."""

    def __init__(self, graph: GraphProto):
        self.makers, self.known = producers(graph), constants(graph)
        self.inputs: dict[str, tuple[Column, ...]] = {}
        for value in graph.input:
            first = sum(map(len, self.inputs.values()))
            width = (tensor_type(value).shape or (0, 0))[1] or 0
            self.inputs[value.name] = tuple((first + place, "") for place in range(width))

    def of(self, value: str) -> tuple[Column, ...] | None:
        """The column of each feature in `value`."""
        if value in self.inputs:
            return self.inputs[value]
        node = self.makers.get(value)
        if node is None:
            return None
        if node.op_type == "Concat":
            parts = [self.of(name) for name in node.input]
            return None if None in parts else tuple(column for part in parts for column in part or ())
        if node.op_type in ("ArrayFeatureExtractor", "Gather"):
            return self._chosen(node)
        if node.op_type in ARITHMETIC or node.op_type == "Where":
            computed = [name for name in node.input if name not in self.known]
            return self.of(computed[-1])
        before = self.of(node.input[0])
        if node.op_type == "OneHotEncoder":
            return self._categories(node, before)
        return before if node.op_type in (*SAME_COLUMNS, "Reshape", "Flatten") else None

    def _chosen(self, node: NodeProto) -> tuple[Column, ...] | None:
        before = self.of(node.input[0])
        if before is None or node.input[1] not in self.known:
            return None
        places = to_array(self.known[node.input[1]]).reshape(-1).tolist()
        return tuple(before[place] for place in places) if max(places) < len(before) else None

    def _categories(self, node: NodeProto, before: tuple[Column, ...] | None) -> tuple[Column, ...] | None:
        if before is None or len(before) != 1:
            return None
        options = attributes(node)
        names = options.get("cats_strings") or options.get("cats_int64s") or []
        texts = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
        return tuple((before[0][0], f"={text}") for text in texts)
