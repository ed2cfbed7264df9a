"""Make a graph plain: one output, no functions, no dead ends, and no operator that has no place in an audit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx.inliner
from onnx import GraphProto, ModelProto, helper

from audit.errors import ModelError
from audit.model.onnx.graph import add_constant, attributes, constants, prune, sparse_to_array, walk
from audit.model.onnx.linear import expand_linear_models

REFUSED = (
    (
        r"(Dynamic)?(Quantize|Dequantize)Linear|QLinear\w+|\w+Integer(ToFloat)?|QGemm|QAttention|MatMulNBits|MatMulBnb4",
        "is quantised and its steps have no gradient; audit the float model it came from",
    ),
    (r"TreeEnsemble\w*", "is made of decision trees, which have no gradient and no dense layers; audit a network"),
    (
        r"String\w+|TfIdfVectorizer|RegexFullMatch|CategoryMapper|DictVectorizer|LabelEncoder|OneHotEncoder|Tokenizer",
        "works on text or categories; export the part of the model behind its encoder, which takes numbers",
    ),
    (
        r"Sequence\w+|SplitToSequence|ConcatFromSequence|Optional\w*",
        "works on sequences of tensors; export the model with plain tensors",
    ),
    (r"Loop|Scan", "runs a loop; export the model unrolled, for a fixed number of steps"),
    (
        r"If",
        "takes a branch that depends on the data, or on a size that it leaves open (then say --input-shape); export it "
        "without data-dependent control flow",
    ),
)
"""Operators that stop an audit, and what to say and do about them."""


def prepare(model: ModelProto, output: str) -> ModelProto:
    """A copy of `model` that computes `output` alone, without functions, defaults, ZipMaps and dead ends."""
    plain = onnx.inliner.inline_local_functions(model) if model.functions else model
    ready = ModelProto()
    ready.CopyFrom(plain)
    graph = ready.graph
    _keep_output(graph, output)
    _unpack_sparse(graph)
    _drop_default_inputs(graph)
    _skip_zipmaps(graph)
    prune(graph)
    _drop_unused_inputs(graph)
    del graph.value_info[:]
    for item in (*graph.initializer, *graph.node):
        item.doc_string = ""  # from here on it says what a constant or a node was before it was rewritten
    expand_linear_models(ready)
    return ready


def _keep_output(graph: GraphProto, output: str) -> None:
    kept = next(value for value in graph.output if value.name == output)
    del graph.output[:]
    graph.output.append(kept)


def _unpack_sparse(graph: GraphProto) -> None:
    for sparse in graph.sparse_initializer:
        add_constant(graph, sparse.values.name, sparse_to_array(sparse))
    del graph.sparse_initializer[:]


def _drop_default_inputs(graph: GraphProto) -> None:
    """An input with an initializer has a default value (before IR version 4 every initializer was listed so)."""
    known = constants(graph)
    free = [value for value in graph.input if value.name not in known]
    del graph.input[:]
    graph.input.extend(free)


def _skip_zipmaps(graph: GraphProto) -> None:
    """A ZipMap only puts class names beside the scores: hand on the scores."""
    for position, node in enumerate(graph.node):
        if node.op_type == "ZipMap":
            graph.node[position].CopyFrom(helper.make_node("Identity", list(node.input), list(node.output)))
            for value in graph.output:
                if value.name in node.output:
                    value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def _drop_unused_inputs(graph: GraphProto) -> None:
    """Inputs that the audited output does not read need not be fed."""
    used = {name for node in walk(graph) for name in node.input}
    kept = [value for value in graph.input if value.name in used]
    del graph.input[:]
    graph.input.extend(kept)


def refuse(path: Path, graph: GraphProto) -> None:
    """Stop at operators that no audit can handle, whatever the converter may know."""
    for pattern, sentence in REFUSED:
        names = sorted({node.op_type for node in walk(graph) if re.fullmatch(pattern, node.op_type)})
        if names:
            raise ModelError(f"{path}: the model {sentence} (operator {', '.join(names)}).")


def class_labels(model: ModelProto, output: str) -> list[int | str]:
    """The class labels in the order of the scores, where a scikit-learn export names them."""
    makers = [node for node in model.graph.node if output in node.output and node.op_type == "ZipMap"]
    lone = [node for node in model.graph.node if node.op_type == "LinearClassifier"]
    for node in makers or (lone if len(lone) == 1 else []):
        options = attributes(node)
        labels: list[Any] = next((value for name, value in options.items() if name.startswith("classlabels")), [])
        return [label.decode() if isinstance(label, bytes) else label for label in labels]
    return []
