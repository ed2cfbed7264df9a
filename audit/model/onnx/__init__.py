"""The road from an ONNX file to a `Model`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, TensorProto, ValueInfoProto

from audit.errors import ModelError
from audit.model.base import InputSpec, Model, check_weights, trial_batches
from audit.model.canon import TRIALS, guard
from audit.model.onnx.batch_size import declared_batch, free_batch_size
from audit.model.onnx.convert import network_of
from audit.model.onnx.dense import rewrite_dense
from audit.model.onnx.file import Source, read_file
from audit.model.onnx.graph import TensorType, infer_types, opset, tensor_type, walk
from audit.model.onnx.inputs_outputs import (
    FixedInput,
    choose_inputs,
    choose_output,
    fix_inputs,
    fix_sizes,
    fixed_inputs,
    fixed_notes,
    wanted_values,
)
from audit.model.onnx.outputs import take_off_head
from audit.model.onnx.prefix import Prefix, split_off
from audit.model.onnx.preparation import WholeFile, preparation_note, preparation_of
from audit.model.onnx.runtime import Feed, Reference, seconds_of
from audit.model.onnx.simplify import class_labels, refuse, simplified
from audit.model.torch import LONGEST
from audit.settings import Settings

DTYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.INT64: torch.int64,
    TensorProto.INT32: torch.int32,
    TensorProto.INT16: torch.int16,
    TensorProto.INT8: torch.int8,
    TensorProto.UINT8: torch.uint8,
    TensorProto.BOOL: torch.bool,
}


def load(path: Path, settings: Settings) -> Model:
    """The network in `path`, with its scores [n, C] and the file itself in onnxruntime as the reference."""
    source = read_file(path)
    output = choose_output(path, source.model, settings.output)
    given = _with_inputs(source, output, settings)
    _refuse_long(path, given.model)
    freed, batch = free_batch_size(given.model)
    taken = [replace(spec, batch=batch) for spec in given.inputs]
    refuse(path, freed.graph)
    end = take_off_head(path, freed)
    head, head_notes = end.head, end.notes
    dense_notes = rewrite_dense(freed)
    network = _converted(path, freed)
    check_weights(dict(network.named_parameters()), path)
    if head == "none":
        head, unexplained = guard(network, output, trial_batches(taken, batch or TRIALS), end.per_position)
        head_notes += unexplained
    graph_notes = (*_batch_notes(given.inputs[0].batch, batch), *_weight_notes(given.model, freed))
    names, ops = _layers(network)
    labels = class_labels(source.model, output)
    return Model(
        network=network,
        path=path,
        format="onnx",
        sha256=source.sha256,
        input=taken[0],
        others=tuple(taken[1:]),
        unused=given.unused,
        output=output,
        head=head,
        per_position=end.per_position,
        opset=opset(source.model) or None,
        ops=ops,
        names=names,
        notes=(*given.notes, *graph_notes, *head_notes, *dense_notes, *_class_notes(labels)),
        classes=tuple(map(str, labels)) or None,
        preparation=preparation_of(path, given.prefix) if given.prefix is not None else None,
        reference=_reference(source, given, output),
        reference_name="onnxruntime",
    )


def _refuse_long(path: Path, model: ModelProto) -> None:
    """Refuses what onnxruntime could not be stopped in, before it runs anything of it."""
    types = infer_types(model)
    for node in model.graph.node:
        if seconds_of(node, lambda name: types.get(name, TensorType()).shape) > LONGEST:
            raise ModelError(
                f"{path}: its {node.op_type} {node.name or node.output[0]!r} takes over {LONGEST:g} seconds for a few "
                "samples, and an audit takes thousands of them; audit a smaller model."
            )


@dataclass(frozen=True)
class _Given:
    """The graph of a file with the inputs that samples bring, every other one at a constant."""

    model: ModelProto
    prefix: Prefix | None  # what the file does to raw samples before its network, cut off
    inputs: list[InputSpec]  # as the file declares them, its own batch size included
    fixed: list[FixedInput]
    unused: tuple[str, ...]  # of the fixed ones, those that nothing reads
    notes: tuple[str, ...]


def _with_inputs(source: Source, output: str, settings: Settings) -> _Given:
    path, simple = source.path, simplified(source.model, output)
    prefix = split_off(simple) if not settings.fix_input else None
    if any(tensor_type(value).element == TensorProto.STRING for value in simple.graph.input):
        refuse(path, simple.graph)  # what is done to text stands before what is wrong with an input of text
    values = wanted_values(path, source.model, settings.fix_input)
    fed = choose_inputs(path, simple, settings.input, values)
    fixed = fixed_inputs(path, source.model, fed, values) if prefix is None else []
    fix_inputs(simple, fed[0], fixed)
    fix_sizes(path, simple, settings.input_shape)
    unused = tuple(one.name for one in fixed if one.name not in values)
    notes = (preparation_note(prefix),) if prefix is not None else fixed_notes(fixed, values)
    return _Given(simple, prefix, _declared_inputs(path, simple), fixed, unused, notes)


def _declared_inputs(path: Path, model: ModelProto) -> list[InputSpec]:
    batch = declared_batch(model.graph.input)
    return [_declared_input(path, value, batch) for value in model.graph.input]


def _declared_input(path: Path, value: ValueInfoProto, batch: int | None) -> InputSpec:
    kind = tensor_type(value)
    if kind.element not in DTYPES:
        raise ModelError(
            f"{path}: the input {value.name!r} takes {TensorProto.DataType.Name(kind.element).lower()} numbers, which "
            "no data here can be turned into; export the model with a float input."
        )
    shape = kind.shape[1:] if kind.shape is not None else None
    return InputSpec(value.name, shape, DTYPES[kind.element], batch)


def _converted(path: Path, proto: ModelProto) -> torch.fx.GraphModule:
    try:
        return network_of(proto)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _layers(network: torch.fx.GraphModule) -> tuple[dict[str, str], dict[str, str]]:
    """Names where they differ from the submodule's, and the operators of the dense layers' submodules."""
    names = {path: name for path, name in network.onnx_names.items() if path != name}  # type: ignore[operator, union-attr]
    return names, dict(network.onnx_ops)  # type: ignore[arg-type]


def _weight_notes(simple: ModelProto, freed: ModelProto) -> tuple[str, ...]:
    """The sentence for weights that were stored in few bits."""
    before, after = (sum(node.op_type == "DequantizeLinear" for node in m.graph.node) for m in (simple, freed))
    if before == after:
        return ()
    return (
        f"{before - after} weights are stored quantised; the audit is of the floats that the file makes of them, and "
        "onnxruntime was compared without its shortcuts for such weights, which round further.",
    )


def _batch_notes(declared: int | None, kept: int | None) -> tuple[str, ...]:
    if declared is None:
        return ()
    if kept is None:
        return (f"The file fixes the batch size at {declared}; it was freed, and gives the same answers.",)
    return (f"The file works with batches of {kept} alone, so it is fed {kept} samples at a time.",)


def _class_notes(labels: list[Any]) -> tuple[str, ...]:
    return (f"The file names its classes {', '.join(map(str, labels))}, in this order.",) if labels else ()


def _reference(source: Source, given: _Given, output: str) -> Reference | WholeFile:
    labels = class_labels(source.model, output)
    if given.prefix is not None:
        return WholeFile(source.path, source.model, given.prefix, output, labels)
    numbers = {dtype: number for number, dtype in DTYPES.items()}
    elements = {spec.name: numbers[spec.dtype] for spec in given.inputs}
    feed = Feed(elements, given.inputs[0].batch, {one.name: one.array for one in given.fixed})
    unquantised = not any(node.op_type == "DequantizeLinear" for node in walk(source.model.graph))
    return Reference(source.path, feed, output, labels, optimise=unquantised)
