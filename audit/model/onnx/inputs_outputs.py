"""Which input takes the samples, which output gives the scores, and what all other inputs are fixed at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from audit.errors import ModelError, UsageError
from audit.model.canon import is_row, shape_text
from audit.model.onnx.batch_size import rows_of, trial_feeds
from audit.model.onnx.graph import (
    FLOATS,
    Array,
    TensorType,
    add_constant,
    fresh,
    infer_types,
    producers,
    set_nodes,
    tensor_type,
)
from audit.model.onnx.runtime import LONGEST, RuntimeFailure, Session, numpy_dtype


def choose_output(path: Path, model: ModelProto, wanted: str | None) -> str:
    """The output with the scores: the one asked for, or the only one that has floats [n, C]."""
    names = [value.name for value in model.graph.output]
    types = infer_types(model)
    if wanted is not None and wanted not in names:
        raise ModelError(f"{path}: there is no output {wanted!r}; --output can be one of {_listed(names, types)}.")
    scores = [name for name in ([wanted] if wanted else names) if _is_scores(model, name, types)]
    if wanted and not scores:
        raise ModelError(
            f"{path}: the output {wanted!r} holds no scores (floats); choose another of {_listed(names, types)}."
        )
    if not scores:
        raise ModelError(
            f"{path}: no output holds scores (floats), only {_listed(names, types)}; "
            "export the model with its logits or probabilities."
        )
    flat = [name for name in scores if is_row(types.get(name, TensorType()).shape)]
    best = flat if len(scores) > 1 and flat else scores
    if len(best) > 1:
        raise ModelError(
            f"{path}: several outputs could be the scores: {_listed(best, types)}; choose one with --output NAME."
        )
    return best[0]


def _is_scores(model: ModelProto, name: str, types: dict[str, TensorType]) -> bool:
    maker = producers(model.graph).get(name)
    return (maker is not None and maker.op_type == "ZipMap") or types.get(name, TensorType()).element in FLOATS


def choose_inputs(path: Path, model: ModelProto, wanted: str | None, fixed: Collection[str] = ()) -> list[str]:
    """The inputs that every sample brings, the wanted one first; all others are fixed, or have a value in the file."""
    types = infer_types(model)
    names = [value.name for value in model.graph.input if value.name not in fixed]
    if wanted is not None and wanted not in names:
        raise ModelError(f"{path}: there is no input {wanted!r}; --input can be one of {_listed(names, types)}.")
    if not names:
        raise ModelError(
            f"{path}: the scores do not depend on any input, so there is nothing to audit; export it again."
        )
    dims = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    fed = wanted or next((name for name in names if _is_per_sample(dims[name], dims[name])), names[0])
    others = [name for name in names if name != fed and not _is_per_sample(dims[name], dims[fed])]
    if others:
        asked = ",".join(f"{name}=VALUE" for name in others)
        raise ModelError(
            f"{path}: the model needs {_listed(others, types)} beside {fed!r}, not one for each sample; hold "
            f"{'them' if len(others) > 1 else 'it'} at the value that the model is used with, by --fix-input {asked}."
        )
    chosen = [fed, *(name for name in names if name != fed)]
    return [_fit_input(path, name, types.get(name, TensorType())) for name in chosen]


def _is_per_sample(dims: Sequence[Any], fed: Sequence[Any]) -> bool:
    """Whether an input's first axis counts the samples: it is open, or as long as that of the fed input."""
    if not dims or not fed:
        return False
    named, size = dims[0].dim_param, dims[0].dim_value
    elsewhere = bool(fed[0].dim_param) and fed[0].dim_param in [dim.dim_param for dim in dims[1:]]
    if elsewhere:  # a state [layers, n, width]
        return False
    return bool(named) or size == 0 or (size == fed[0].dim_value and len(dims) > 1)


def _fit_input(path: Path, name: str, kind: TensorType) -> str:
    if kind.element == TensorProto.STRING:
        raise ModelError(f"{path}: the input {name!r} takes text; export the model behind its text encoder instead.")
    if kind.element == 0:
        raise ModelError(f"{path}: the input {name!r} is not a tensor; export the model with a tensor as input.")
    if kind.shape is not None and (not kind.shape or (len(kind.shape) == 1 and kind.shape[0] is not None)):
        raise ModelError(
            f"{path}: the input {name!r} has shape {shape_text(kind.shape)}, one sample without a batch dimension; "
            "export the model with inputs [n, ...]."
        )
    return name


def fix_sizes(path: Path, model: ModelProto, sizes: tuple[int, ...] | None) -> None:
    """Write the sizes of one sample that `--input-shape` names into an input that leaves them open."""
    if sizes is None:
        return
    several = len(model.graph.input) > 1
    for declared in model.graph.input:
        shape = tensor_type(declared).shape or (None,)
        if not several or (None in shape[1:] and len(shape) == len(sizes) + 1):
            _fix_size(path, declared, sizes)


def _fix_size(path: Path, declared: ValueInfoProto, sizes: tuple[int, ...]) -> None:
    kind = tensor_type(declared)
    rest = kind.shape[1:] if kind.shape is not None else (None,) * len(sizes)
    if len(rest) != len(sizes) or any(own not in (None, size) for own, size in zip(rest, sizes, strict=True)):
        raise ModelError(
            f"{path}: --input-shape {','.join(map(str, sizes))} does not fit the input {declared.name!r}, whose shape "
            f"is {shape_text(kind.shape)}; give the sizes of one sample, without the batch."
        )
    batch = None if kind.shape is None else kind.shape[0]
    free = declared.type.tensor_type.shape.dim[0].dim_param if kind.shape else ""
    fixed = helper.make_tensor_value_info(declared.name, kind.element, [batch or free or "batch", *sizes])
    declared.CopyFrom(fixed)


def _listed(names: list[str], types: dict[str, TensorType]) -> str:
    return ", ".join(f"{name!r} ({_type_text(types.get(name, TensorType()))})" for name in names)


def _type_text(kind: TensorType) -> str:
    if kind.element == 0:
        return "not a tensor"
    return f"{TensorProto.DataType.Name(kind.element).lower()} {shape_text(kind.shape)}"


# inputs fixed at a constant, so that one is left for the samples: a recurrent state, a sample rate, a mask

HOW = "--fix-input NAME=VALUE"


@dataclass(frozen=True)
class FixedInput:
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


def fixed_inputs(path: Path, model: ModelProto, fed: Sequence[str], values: dict[str, float]) -> list[FixedInput]:
    """Every input but the fed ones, at its value; one that does not matter to the audited output is fixed at zero."""
    own = {tensor.name for tensor in model.graph.initializer}
    declared = {value.name: value for value in model.graph.input if value.name not in own}
    others = {name: value for name, value in declared.items() if name not in fed}
    return [_fixed(path, value, declared[fed[0]], values.get(name, 0.0)) for name, value in others.items()]


def _fixed(path: Path, declared: ValueInfoProto, fed: ValueInfoProto, value: float) -> FixedInput:
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
    return FixedInput(declared.name, kind.element, value, tuple(size or 0 for size in kind.shape), follows)


def fix_inputs(model: ModelProto, fed: str, fixed: Sequence[FixedInput]) -> None:
    """Put the constants into the graph, in the place of its inputs, and free or fix the batch size as they need it."""
    graph = model.graph
    wanted = {one.name: one for one in fixed if one.name in {value.name for value in graph.input}}
    kept = [value for value in graph.input if value.name not in wanted]
    del graph.input[:]
    graph.input.extend(kept)
    nodes = [node for one in wanted.values() for node in _constant(graph, one, fed)]
    set_nodes(graph, [*nodes, *graph.node])
    if wanted and _takes_one_sample_only(model):
        for value in graph.input:
            value.type.tensor_type.shape.dim[0].dim_value = 1


def _constant(graph: GraphProto, fixed: FixedInput, fed: str) -> list[NodeProto]:
    """An initializer, or Expand(value, sizes) where sizes of the fed input are among them."""
    value = np.asarray(fixed.value, dtype=numpy_dtype(fixed.element))
    if all(axis is None for axis in fixed.follows):
        add_constant(graph, fixed.name, np.full(fixed.sizes, value))
        return []
    sizes = fresh(graph, f"{fixed.name}/sizes")
    nodes, parts = [helper.make_node("Shape", [fed], [sizes])], []
    for place, (size, axis) in enumerate(zip(fixed.sizes, fixed.follows, strict=True)):
        at = f"{fixed.name}/size{place}"
        number = size if axis is None else axis
        part = add_constant(graph, fresh(graph, f"{at}/number"), np.array([number], dtype=np.int64))
        if axis is not None:
            nodes.append(helper.make_node("Gather", [sizes, part], [fresh(graph, at)]))
            part = nodes[-1].output[0]
        parts.append(part)
    shape, scalar = (fresh(graph, f"{fixed.name}/{word}") for word in ("shape", "value"))
    nodes.append(helper.make_node("Concat", parts, [shape], axis=0))
    add_constant(graph, scalar, value)
    return [*nodes, helper.make_node("Expand", [scalar, shape], [fixed.name])]


def _takes_one_sample_only(model: ModelProto) -> bool:
    """Whether a constant of its own batch size, 1, leaves the graph no other."""
    output, kind = model.graph.output[0].name, tensor_type(model.graph.input[0])
    if not kind.shape or kind.shape[0] is not None:
        return False
    session = Session(model)
    for feeds in trial_feeds(model.graph.input, 2):
        one, two = (_answered(session, output, rows_of(feeds, 0, count)) for count in (1, 2))
        if one is not None:
            return two != 2
    return False


def _answered(session: Session, output: str, feeds: dict[str, Array]) -> int | None:
    """How many rows the answer has; None where these inputs do not run."""
    try:
        return len(np.atleast_1d(session.run([output], feeds, LONGEST)[0]))
    except RuntimeFailure:
        return None


def fixed_notes(fixed: Sequence[FixedInput], values: dict[str, float]) -> tuple[str, ...]:
    """What the report says of them."""
    return tuple(
        f"The input {one.name!r} was held at {one.value:g} throughout (--fix-input): the audit says nothing about "
        "other values of it."
        for one in fixed
        if one.name in values
    )
