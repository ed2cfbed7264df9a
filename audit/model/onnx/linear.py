"""The linear models of ai.onnx.ml, as scikit-learn exports write them, in terms of a dense layer and its head."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from audit.model.onnx.graph import Array, add_constant, attributes, fresh, set_nodes
from audit.model.onnx.types import TensorType, infer_types

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
