"""Inputs held at a constant, so that one input is left for the samples: a recurrent state, a sample rate, a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from audit.errors import ModelError, UsageError
from audit.model.onnx.batch import trial_inputs
from audit.model.onnx.graph import Array, add_constant, fresh, set_nodes
from audit.model.onnx.runtime import RuntimeFailure, Session, numpy_dtype
from audit.model.onnx.types import tensor_type

HOW = "--fix-input NAME=VALUE"


@dataclass(frozen=True)
class Held:
    """One input, its value, and its shape: a size that the file leaves open follows an axis of the samples' input."""

    name: str
    element: int
    value: float
    sizes: tuple[int, ...]
    follows: tuple[int | None, ...]  # the axis of the fed input that an open size follows; None where it is fixed

    def array(self, x: Array) -> Array:
        """The constant that goes with the samples x [n, ...]."""
        shape = [size if axis is None else x.shape[axis] for size, axis in zip(self.sizes, self.follows, strict=True)]
        return np.full(shape, self.value, dtype=numpy_dtype(self.element))


def wanted_values(path: Path, model: ModelProto, asked: Sequence[str] | None) -> dict[str, float]:
    """What `--fix-input` asks for, by the name of the input."""
    names, own = [value.name for value in model.graph.input], {tensor.name for tensor in model.graph.initializer}
    values: dict[str, float] = {}
    for item in asked or ():
        name, _, text = item.rpartition("=")
        try:
            values[name] = float(text)
        except ValueError:
            raise UsageError(f"--fix-input: {item!r} is no NAME=VALUE with a number, such as state=0.") from None
        if name not in names:
            raise ModelError(f"{path}: there is no input {name!r} to hold; its inputs are {', '.join(names)}.")
        if name in own:
            raise ModelError(f"{path}: the input {name!r} has its value in the file; leave it out of --fix-input.")
    return values


def held_inputs(path: Path, model: ModelProto, fed: str, values: dict[str, float]) -> list[Held]:
    """Every input but the fed one, at its value; one that does not matter to the audited output is held at zero."""
    own = {tensor.name for tensor in model.graph.initializer}
    declared = {value.name: value for value in model.graph.input if value.name not in own}
    return [_held(path, value, declared[fed], values.get(name, 0.0)) for name, value in declared.items() if name != fed]


def _held(path: Path, declared: ValueInfoProto, fed: ValueInfoProto, value: float) -> Held:
    kind = tensor_type(declared)
    if kind.shape is None or kind.element in (0, TensorProto.STRING):
        raise ModelError(
            f"{path}: the input {declared.name!r} is not a tensor of numbers with a shape, so it cannot be held at a "
            "constant; export the model without it."
        )
    if numpy_dtype(kind.element).kind in "iub" and not value.is_integer():
        raise ModelError(f"{path}: the input {declared.name!r} takes whole numbers, and {value:g} is none; {HOW}.")
    axes = {dim.dim_param: axis for axis, dim in enumerate(fed.type.tensor_type.shape.dim) if dim.dim_param}
    names = [dim.dim_param for dim in declared.type.tensor_type.shape.dim]
    follows = tuple(None if size else axes.get(name, 0) for size, name in zip(kind.shape, names, strict=True))
    return Held(declared.name, kind.element, value, tuple(size or 0 for size in kind.shape), follows)


def hold(model: ModelProto, fed: str, held: Sequence[Held]) -> None:
    """Put the constants into the graph, in the place of its inputs, and free or fix the batch size as they need it."""
    graph = model.graph
    wanted = {one.name: one for one in held if one.name in {value.name for value in graph.input}}
    kept = [value for value in graph.input if value.name not in wanted]
    del graph.input[:]
    graph.input.extend(kept)
    nodes = [node for one in wanted.values() for node in _constant(graph, one, fed)]
    set_nodes(graph, [*nodes, *graph.node])
    if wanted and _takes_one_sample_only(model):
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def _constant(graph: GraphProto, held: Held, fed: str) -> list[NodeProto]:
    """An initializer, or Expand(value, sizes) where sizes of the fed input are among them."""
    value = np.asarray(held.value, dtype=numpy_dtype(held.element))
    if all(axis is None for axis in held.follows):
        add_constant(graph, held.name, np.full(held.sizes, value))
        return []
    sizes = fresh(graph, f"{held.name}/sizes")
    nodes, parts = [helper.make_node("Shape", [fed], [sizes])], []
    for place, (size, axis) in enumerate(zip(held.sizes, held.follows, strict=True)):
        at = f"{held.name}/size{place}"
        number = size if axis is None else axis
        part = add_constant(graph, fresh(graph, f"{at}/number"), np.array([number], dtype=np.int64))
        if axis is not None:
            nodes.append(helper.make_node("Gather", [sizes, part], [fresh(graph, at)]))
            part = nodes[-1].output[0]
        parts.append(part)
    shape, scalar = (fresh(graph, f"{held.name}/{word}") for word in ("shape", "value"))
    nodes.append(helper.make_node("Concat", parts, [shape], axis=0))
    add_constant(graph, scalar, value)
    return [*nodes, helper.make_node("Expand", [scalar, shape], [held.name])]


def _takes_one_sample_only(model: ModelProto) -> bool:
    """Whether a constant of its own batch size, 1, leaves the graph no other."""
    declared, output = model.graph.input[0], model.graph.output[0].name
    kind = tensor_type(declared)
    if not kind.shape or kind.shape[0] is not None:
        return False
    session = Session(model)
    for x in trial_inputs(kind, 2):
        one, two = (_rows(session, output, declared.name, part) for part in (x[:1], x))
        if one is not None:
            return two != 2
    return False


def _rows(session: Session, output: str, name: str, x: Array) -> int | None:
    """How many rows the answer to x has; None where x does not run."""
    try:
        return len(np.atleast_1d(session.run([output], {name: x})[0]))
    except RuntimeFailure:
        return None


def held_notes(held: Sequence[Held], values: dict[str, float]) -> tuple[str, ...]:
    """What the report says of them."""
    return tuple(
        f"The input {one.name!r} was held at {one.value:g} throughout (--fix-input): the audit says nothing about "
        "other values of it."
        for one in held
        if one.name in values
    )
