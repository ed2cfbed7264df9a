"""Recognise the final layer that turns scores into probabilities, in the forms that exporters write it.

Each rule looks at the value with a given name and returns the name of the scores beneath it, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from audit.model.onnx.graph import attributes, constants, opset, producers, to_array
from audit.model.onnx.types import TensorType, infer_types

MEANS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
RESHAPES = ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout")


@dataclass(frozen=True)
class View:
    """A graph as the rules look at it."""

    makers: Mapping[str, NodeProto]
    known: Mapping[str, TensorProto]
    types: Mapping[str, TensorType]
    opset: int

    @classmethod
    def of(cls, model: ModelProto) -> View:
        """The view of a model."""
        return cls(producers(model.graph), constants(model.graph), infer_types(model), opset(model))

    def maker(self, name: str, *operators: str) -> NodeProto | None:
        """The node that makes a value, if it is one of `operators`."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in operators else None

    def is_number(self, name: str, number: float) -> bool:
        """Whether a value is this constant throughout."""
        return name in self.known and bool(np.all(to_array(self.known[name]) == number))

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """The shape, as far as it is known."""
        return self.types.get(name, TensorType()).shape

    def beneath_reshapes(self, name: str, *more: str) -> str:
        """The value before any Cast, Reshape, Squeeze, … that follow it, or the mean over an axis of length 1."""
        while node := self.maker(name, *RESHAPES, *more, *MEANS):
            if node.op_type in MEANS and not self._over_single_entries(node):
                break
            name = node.input[0]
        return name

    def axes(self, node: NodeProto) -> list[int] | None:
        """The axes that a node reduces, where they are constants."""
        axes = attributes(node).get("axes")
        if axes is None and len(node.input) > 1 and node.input[1] in self.known:
            axes = to_array(self.known[node.input[1]]).tolist()
        return axes

    def _over_single_entries(self, node: NodeProto) -> bool:
        shape, axes = self.shape(node.input[0]), self.axes(node)
        return bool(shape and axes) and all((shape or ())[axis] == 1 for axis in axes or ())


def find_head(view: View, name: str) -> tuple[str, str] | None:
    """The head that makes the value, by its name in HEADS, and the scores beneath it."""
    rules = {"softmax": softmax, "log_softmax": log_softmax, "sigmoid": sigmoid, "sigmoid_pair": sigmoid_pair}
    for head, rule in rules.items():
        scores = rule(view, name)
        if scores is not None:
            return head, scores
    node = view.maker(name, "Normalizer")
    if node is not None and attributes(node).get("norm") == "L1":
        beneath = find_head(view, node.input[0])  # probabilities that already add up to one pass unchanged
        return beneath if beneath and beneath[0] in ("softmax", "sigmoid_pair") else None
    return None


def softmax(view: View, name: str) -> str | None:
    """Softmax(x); Exp(x) / ReduceSum(Exp(x)), with or without the maximum taken off; Exp(log-softmax(x))."""
    if node := view.maker(name, "Softmax"):
        return str(node.input[0]) if _over_classes(view, node) else None
    if node := view.maker(name, "Exp"):
        return log_softmax(view, node.input[0])
    if node := view.maker(name, "Div"):
        exponential = view.maker(node.input[0], "Exp")
        total = _reduced(view, node.input[1], "ReduceSum")
        if exponential and total == node.input[0]:
            return _unshifted(view, exponential.input[0])
    return None


def log_softmax(view: View, name: str) -> str | None:
    """LogSoftmax(x); Log(softmax(x)); x minus its ReduceLogSumExp or Log(ReduceSum(Exp(x)))."""
    if node := view.maker(name, "LogSoftmax"):
        return str(node.input[0]) if _over_classes(view, node) else None
    if node := view.maker(name, "Log"):
        return softmax(view, node.input[0])
    if node := view.maker(name, "Sub"):
        x, total = node.input
        if _reduced(view, total, "ReduceLogSumExp") == x or _log_sum_exp(view, total) == x:
            return _unshifted(view, x)
    return None


def sigmoid(view: View, name: str) -> str | None:
    """Sigmoid(x); 1 / (1 + Exp(-x)), as a Div or a Reciprocal."""
    if node := view.maker(name, "Sigmoid"):
        return str(node.input[0])
    bottom = None
    if node := view.maker(name, "Reciprocal"):
        bottom = node.input[0]
    elif (node := view.maker(name, "Div")) and view.is_number(node.input[0], 1):
        bottom = node.input[1]
    sum_ = view.maker(bottom, "Add") if bottom else None
    exponential = view.maker(_partner(view, sum_, 1) or "", "Exp") if sum_ else None
    return _negated(view, exponential.input[0]) if exponential else None


def sigmoid_pair(view: View, name: str) -> str | None:
    """Concat(1 - p, p) of one column p = sigmoid(x): scikit-learn's way to write two classes."""
    node = view.maker(name, "Concat")
    if node is None or len(node.input) != 2 or attributes(node).get("axis") not in (1, -1):
        return None
    rest, p = node.input
    difference = view.maker(rest, "Sub")
    shape = view.shape(p)
    one_column = shape is not None and len(shape) == 2 and shape[1] == 1
    if difference and one_column and view.is_number(difference.input[0], 1) and difference.input[1] == p:
        return sigmoid(view, p)
    return None


def _over_classes(view: View, node: NodeProto) -> bool:
    """Whether a Softmax runs over all that belongs to one sample, so that it can move behind any reshaping."""
    axis = attributes(node).get("axis", -1 if view.opset >= 13 else 1)
    shape = view.shape(node.input[0])
    if shape is None:
        return axis in (1, -1)
    axis %= len(shape)
    if view.opset < 13:  # there, everything from `axis` on is one row
        return axis == 1 or all(size == 1 for size in shape[1:axis])
    return axis > 0 and all(size == 1 for place, size in enumerate(shape) if place not in (0, axis))


def _reduced(view: View, name: str, operator: str) -> str | None:
    """What a value is the row-wise reduction of, spread over the row again or not."""
    node = view.maker(view.beneath_reshapes(name, "Expand"), operator)
    if node is None:
        return None
    axes, shape = view.axes(node), view.shape(node.input[0])
    last = {-1, 1} if shape is None else {-1, len(shape) - 1}
    return node.input[0] if axes is not None and len(axes) == 1 and axes[0] in last else None


def _log_sum_exp(view: View, name: str) -> str | None:
    logarithm = view.maker(view.beneath_reshapes(name), "Log")
    total = _reduced(view, logarithm.input[0], "ReduceSum") if logarithm else None
    exponential = view.maker(total, "Exp") if total else None
    return exponential.input[0] if exponential else None


def _unshifted(view: View, name: str) -> str:
    """Scores before their maximum, or the larger of it and a constant, was taken off for the sake of rounding."""
    node = view.maker(name, "Sub")
    if node is None:
        return name
    shift = node.input[1]
    if clamp := view.maker(view.beneath_reshapes(shift, "Expand"), "Max"):
        shift = next((value for value in clamp.input if value not in view.known), shift)
    return node.input[0] if _reduced(view, shift, "ReduceMax") == node.input[0] else name


def _partner(view: View, node: NodeProto, number: float) -> str | None:
    """The other operand of a node that has the constant `number` as one."""
    return next((node.input[1 - side] for side in (0, 1) if view.is_number(node.input[side], number)), None)


def _negated(view: View, name: str) -> str | None:
    if node := view.maker(name, "Neg"):
        return str(node.input[0])
    node = view.maker(name, "Mul")
    return _partner(view, node, -1) if node else None
