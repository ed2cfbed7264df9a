"""A graph reduced to what an audit reads: one output, standard operators, nothing that no output depends on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.inliner
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from audit.errors import ModelError
from audit.model.onnx.graph import (
    Array,
    TensorType,
    add_constant,
    attributes,
    constants,
    fresh,
    infer_types,
    producers,
    prune,
    set_nodes,
    sparse_to_array,
    to_array,
    walk,
)

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


def simplified(model: ModelProto, output: str) -> ModelProto:
    """A copy of `model` that computes `output` alone, without functions, defaults, ZipMaps and dead ends."""
    copy = ModelProto()
    copy.CopyFrom(onnx.inliner.inline_local_functions(model) if model.functions else model)
    graph = copy.graph
    _keep_output(graph, output)
    _unpack_sparse(graph)
    _drop_default_inputs(graph)
    _skip_zipmaps(graph)
    prune(graph)
    _drop_unused_inputs(graph)
    del graph.value_info[:]
    for item in (*graph.initializer, *graph.node):
        item.doc_string = ""  # from here on it says what a constant or a node was before it was rewritten
    expand_linear_models(copy)
    return copy


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


# the linear models of ai.onnx.ml, as scikit-learn exports write them, in terms of a dense layer and its head

KINDS = {"LinearClassifier": "linear_classifier", "LinearRegressor": "linear_regressor"}


def expand_linear_models(model: ModelProto) -> None:
    """Replace each LinearClassifier's scores and each LinearRegressor by a Gemm and standard operators.

    The Gemm's doc string says what the file called it.
    """
    graph = model.graph
    if not any(node.op_type in KINDS for node in graph.node):
        return
    types = infer_types(model)
    nodes: list[NodeProto] = []
    for node in graph.node:
        features = _features(node, types.get(node.input[0], TensorType()).shape) if node.op_type in KINDS else 0
        nodes.extend(_Expansion(model, node, features).nodes() if features else [node])
    set_nodes(graph, nodes)


def _features(node: NodeProto, shape: tuple[int | None, ...] | None) -> int:
    """How many inputs the model has: told by the number of coefficients and of intercepts, else by the input."""
    options = attributes(node)
    count, rows = len(options.get("coefficients", ())), len(options.get("intercepts", ())) or options.get("targets", 0)
    if rows and count % rows == 0:
        return count // rows
    return (shape[-1] or 0) if shape else 0


class _Expansion:
    """One linear model and the nodes that say the same."""

    def __init__(self, model: ModelProto, node: NodeProto, features: int):
        options = attributes(node)
        self.graph, self.node = model.graph, node
        self.weight = np.array(options["coefficients"], dtype=np.float32).reshape(-1, features)
        self.bias = np.array(options.get("intercepts", [0.0] * len(self.weight)), dtype=np.float32)
        self.transform: str = options.get("post_transform", "NONE")
        self.labels = len(options.get("classlabels_ints", ()) or options.get("classlabels_strings", ()))

    def nodes(self) -> list[NodeProto]:
        """Dense and what follows it; the node itself where its transform is none that networks end in."""
        scores = self.node.output[-1]
        if self.node.op_type == "LinearRegressor":
            return self._dense(self.weight, self.bias, scores) if self.transform == "NONE" else [self.node]
        single = len(self.weight) == 1 and self.labels == 2
        if self.transform == "LOGISTIC" and (single or self._is_mirrored()):
            return self._pair(scores)
        if single or self.transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
            return [self.node]
        if self.transform == "NONE":
            return self._dense(self.weight, self.bias, scores)
        raw = fresh(self.graph, f"{scores}/scores")
        head = "Softmax" if self.transform == "SOFTMAX" else "Sigmoid"
        options: dict[str, Any] = {"axis": 1} if head == "Softmax" else {}
        return [*self._dense(self.weight, self.bias, raw), helper.make_node(head, [raw], [scores], **options)]

    def _is_mirrored(self) -> bool:
        """A binary model is written as two rows, w and -w; only one of them was trained."""
        two = len(self.weight) == 2
        return two and np.array_equal(self.weight[0], -self.weight[1]) and np.array_equal(self.bias[0], -self.bias[1])

    def _pair(self, scores: str) -> list[NodeProto]:
        raw, one_class, other, one = (fresh(self.graph, f"{scores}/{part}") for part in ("score", "p", "rest", "one"))
        add_constant(self.graph, one, np.ones((), dtype=np.float32))
        return [
            *self._dense(self.weight[-1:], self.bias[-1:], raw),
            helper.make_node("Sigmoid", [raw], [one_class]),
            helper.make_node("Sub", [one, one_class], [other]),
            helper.make_node("Concat", [other, one_class], [scores], axis=1),
        ]

    def _dense(self, weight: Array, bias: Array, output: str) -> list[NodeProto]:
        x, name = fresh(self.graph, f"{output}/input"), self.node.name or KINDS[self.node.op_type]
        inputs = [x, add_constant(self.graph, fresh(self.graph, f"{name}.weight"), weight)]
        if np.any(bias):
            inputs.append(add_constant(self.graph, fresh(self.graph, f"{name}.bias"), bias))
        kind = KINDS[self.node.op_type]
        return [
            helper.make_node("Cast", [self.node.input[0]], [x], to=TensorProto.FLOAT),
            helper.make_node("Gemm", inputs, [output], name=name, doc_string=kind, transB=1),
        ]
