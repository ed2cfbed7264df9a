"""Recognise the final layer that turns scores into probabilities, in whatever form a file writes it.

Every format translates the end of its graph into steps; the rules know nothing else. A rule looks at a value and
returns the scores beneath it, or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Value = Any
"""What a format calls a value: a name in ONNX, a node in torch. A number stands for itself."""

COPIES = ("copy",)
RESHAPES = ("copy", "reshape")
REDUCTIONS = ("sum", "mean", "max", "min")


@dataclass(frozen=True)
class Step:
    """The operation that makes a value.

    `op` is one of: copy (also a change of type), reshape, expand, softmax, log_softmax, sigmoid, tanh, exp, log, neg,
    reciprocal, add, sub, mul, div, maximum (of two), sum, mean, max, min, logsumexp (over axes), concat, normalize (a
    row divided by the sum of its absolute values).
    """

    op: str
    inputs: tuple[Value, ...]
    axes: tuple[int, ...] | None = None  # what it runs over, where that is known


class Tail(Protocol):
    """The end of a graph, as the rules ask about it."""

    def step(self, value: Value) -> Step | None:
        """What makes a value; None where it is no step that the rules know."""

    def shape(self, value: Value) -> tuple[int | None, ...] | None:
        """The shape, as far as it is known."""

    def constant(self, value: Value) -> float | None:
        """The number that a value is throughout; None where it is no such constant."""


class Head(NamedTuple):
    """A final layer: its name in HEADS, the value it makes, which is only reshaped afterwards, and the scores."""

    name: str
    made: Value
    scores: Value


def find_head(tail: Tail, output: Value) -> Head | None:
    """The final layer behind an output."""
    made = _beneath(tail, output, RESHAPES)
    for name, rule in RULES.items():
        scores = rule(tail, made)
        if scores is not None and _ends_alike(tail, scores, output):
            return Head(name, made, scores)
    step = _maker(tail, made, "normalize")
    head = find_head(tail, step.inputs[0]) if step else None  # rows that already add up to one pass unchanged
    return head._replace(made=made) if head and head.name in ("softmax", "sigmoid_pair") else None


def _ends_alike(tail: Tail, scores: Value, output: Value) -> bool:
    """Whether scores at positions [n, T, C] are still so in the output: reshaped, a row would not be one softmax."""
    beneath, above = tail.shape(scores), tail.shape(output)
    if beneath is None or len(beneath) != 3 or 1 in beneath[1:]:
        return True
    return above is not None and len(above) == 3 and above[2] == beneath[2]


def softmax(tail: Tail, value: Value) -> Value | None:
    """Softmax of x; exp(x) / Σ exp(x), with or without the maximum taken off; exp(log-softmax(x))."""
    if step := _maker(tail, value, "softmax"):
        return step.inputs[0] if _over_classes(tail, step) else None
    if step := _maker(tail, value, "exp"):
        return log_softmax(tail, step.inputs[0])
    if step := _maker(tail, value, "div"):
        exponential = _maker(tail, step.inputs[0], "exp")
        if exponential and _is_row_wise(tail, step.inputs[1], "sum", step.inputs[0]):
            return _unshifted(tail, exponential.inputs[0])
    return None


def log_softmax(tail: Tail, value: Value) -> Value | None:
    """Log-softmax of x; log(softmax(x)); x - logsumexp(x); x - log Σ exp(x)."""
    if step := _maker(tail, value, "log_softmax"):
        return step.inputs[0] if _over_classes(tail, step) else None
    if step := _maker(tail, value, "log"):
        return softmax(tail, step.inputs[0])
    if step := _maker(tail, value, "sub"):
        x, total = step.inputs
        if _is_row_wise(tail, total, "logsumexp", x) or _is_log_sum_exp(tail, total, x):
            return _unshifted(tail, x)
    return None


def sigmoid(tail: Tail, value: Value) -> Value | None:
    """Sigmoid of x; 1 / (1 + exp(-x)), as a quotient or a reciprocal; ½ (1 + tanh(x / 2))."""
    if step := _maker(tail, value, "sigmoid"):
        return step.inputs[0]
    if (curve := _raised_half(tail, value)) is not None:
        return _half_of(tail, curve.inputs[0])
    bottom = None
    if step := _maker(tail, value, "reciprocal"):
        bottom = step.inputs[0]
    elif (step := _maker(tail, value, "div")) and tail.constant(step.inputs[0]) == 1:
        bottom = step.inputs[1]
    total = _maker(tail, bottom, "add") if bottom is not None else None
    exponential = _maker(tail, _other_operand(tail, total, 1), "exp") if total else None
    return _negated(tail, exponential.inputs[0]) if exponential else None


def sigmoid_pair(tail: Tail, value: Value) -> Value | None:
    """The columns 1 - p and p of one column p = sigmoid(x): scikit-learn's way to write two classes."""
    step = _maker(tail, value, "concat")
    if step is None or len(step.inputs) != 2 or step.axes not in ((1,), (-1,)):
        return None
    rest, p = step.inputs
    difference, shape = _maker(tail, rest, "sub"), tail.shape(p)
    one_column = shape is not None and len(shape) == 2 and shape[1] == 1
    if difference is None or not one_column or tail.constant(difference.inputs[0]) != 1:
        return None
    return sigmoid(tail, p) if _same(tail, difference.inputs[1], p) else None


RULES = {"softmax": softmax, "log_softmax": log_softmax, "sigmoid": sigmoid, "sigmoid_pair": sigmoid_pair}


def _beneath(tail: Tail, value: Value, kinds: tuple[str, ...]) -> Value:
    """The value before the steps that hand it on: of these kinds, a factor 1, or the mean over an axis of length 1."""
    while step := tail.step(value):
        if step.op in kinds:
            value = step.inputs[0]
        elif step.op == "mul" and (other := _other_operand(tail, step, 1)) is not None:
            value = other
        elif step.op in REDUCTIONS and "reshape" in kinds and _over_single_entries(tail, step):
            value = step.inputs[0]
        else:
            break
    return value


def _maker(tail: Tail, value: Value, op: str) -> Step | None:
    """The step that makes a value, copies of it aside, if it is an `op`."""
    step = tail.step(_beneath(tail, value, COPIES))
    return step if step is not None and step.op == op else None


def _same(tail: Tail, one: Value, other: Value) -> bool:
    return bool(_beneath(tail, one, COPIES) == _beneath(tail, other, COPIES))


def _over_single_entries(tail: Tail, step: Step) -> bool:
    shape = tail.shape(step.inputs[0])
    return bool(shape and step.axes) and all((shape or ())[axis] == 1 for axis in step.axes or ())


def _over_classes(tail: Tail, step: Step) -> bool:
    """Whether a softmax runs over all that belongs to one sample, so that it can move behind any reshaping.

    Or over the scores of each position, [n, T, C].
    """
    shape, axes = tail.shape(step.inputs[0]), step.axes or ()
    if shape is None:
        return axes in ((1,), (-1,))
    over = {axis % len(shape) for axis in axes}
    if len(shape) == 3 and over == {2}:
        return True
    return bool(over) and 0 not in over and all(size == 1 or axis in {0, *over} for axis, size in enumerate(shape))


def _is_row_wise(tail: Tail, value: Value, op: str, x: Value) -> bool:
    """Whether a value is the reduction of x over its last axis, spread over the row again or not."""
    step = _maker(tail, _beneath(tail, value, (*RESHAPES, "expand")), op)
    if step is None or not _same(tail, step.inputs[0], x):
        return False
    shape = tail.shape(step.inputs[0])
    if shape is None:
        return step.axes in ((1,), (-1,))
    return step.axes in ((-1,), (len(shape) - 1,)) and (len(shape) == 3 or all(size == 1 for size in shape[1:-1]))


def _is_log_sum_exp(tail: Tail, value: Value, x: Value) -> bool:
    logarithm = _maker(tail, _beneath(tail, value, RESHAPES), "log")
    total = tail.step(_beneath(tail, logarithm.inputs[0], (*RESHAPES, "expand"))) if logarithm else None
    exponential = _maker(tail, total.inputs[0], "exp") if total and logarithm else None
    if logarithm is None or total is None or exponential is None:
        return False
    return _is_row_wise(tail, logarithm.inputs[0], "sum", total.inputs[0]) and _same(tail, exponential.inputs[0], x)


def _unshifted(tail: Tail, value: Value) -> Value:
    """Scores before their maximum, or the larger of it and a constant, was taken off for the sake of rounding."""
    step = _maker(tail, value, "sub")
    if step is None:
        return value
    x, shift = step.inputs
    if clamp := _maker(tail, _beneath(tail, shift, (*RESHAPES, "expand")), "maximum"):
        shift = next((operand for operand in clamp.inputs if tail.constant(operand) is None), shift)
    return x if _is_row_wise(tail, shift, "max", x) else value


def _other_operand(tail: Tail, step: Step, number: float) -> Value | None:
    """The other operand of a step that has the constant `number` as one."""
    return next((step.inputs[1 - side] for side in (0, 1) if tail.constant(step.inputs[side]) == number), None)


def _raised_half(tail: Tail, value: Value) -> Step | None:
    """The tanh t of ½ (1 + t) or ½ + ½ t."""
    doubled = _half_of(tail, value)
    total = _maker(tail, value if doubled is None else doubled, "add")
    curve = _other_operand(tail, total, 0.5 if doubled is None else 1) if total else None
    if curve is not None and doubled is None:
        curve = _half_of(tail, curve)
    return _maker(tail, curve, "tanh") if curve is not None else None


def _half_of(tail: Tail, value: Value) -> Value | None:
    """What a value is half of, by a factor or a divisor."""
    if step := _maker(tail, value, "mul"):
        return _other_operand(tail, step, 0.5)
    step = _maker(tail, value, "div")
    return step.inputs[0] if step and tail.constant(step.inputs[1]) == 2 else None


def _negated(tail: Tail, value: Value) -> Value | None:
    if step := _maker(tail, value, "neg"):
        return step.inputs[0]
    step = _maker(tail, value, "mul")
    return _other_operand(tail, step, -1) if step else None
