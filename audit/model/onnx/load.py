"""The road from an ONNX file to a `Model`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from onnx import ModelProto, TensorProto

from audit.errors import ModelError
from audit.model.base import InputSpec, Model
from audit.model.batches import trial_batches
from audit.model.canon.scores import TRIALS, guard
from audit.model.foreign import check_weights
from audit.model.onnx.batch_size import free_batch_size
from audit.model.onnx.convert import convert
from audit.model.onnx.dense import rewrite_dense
from audit.model.onnx.file import Source, read_file
from audit.model.onnx.graph import opset, walk
from audit.model.onnx.inputs_outputs import (
    FixedInput,
    choose_input,
    choose_output,
    fix_inputs,
    fix_sizes,
    fixed_inputs,
    fixed_notes,
    wanted_values,
)
from audit.model.onnx.outputs import take_off_head
from audit.model.onnx.prefix import split_off
from audit.model.onnx.preparation import WholeFile, preparation_note, preparation_of
from audit.model.onnx.runtime import Reference
from audit.model.onnx.simplify import class_labels, refuse, simplified
from audit.model.onnx.types import tensor_type
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
    simple = simplified(source.model, output)
    prefix = split_off(simple) if not settings.fix_input else None
    if any(tensor_type(value).element == TensorProto.STRING for value in simple.graph.input):
        refuse(path, simple.graph)  # what is done to text stands before what is wrong with an input of text
    values = wanted_values(path, source.model, settings.fix_input)
    fed = choose_input(path, simple, settings.input, values)
    fixed = fixed_inputs(path, source.model, fed, values) if prefix is None else []
    fix_inputs(simple, fed, fixed)
    fix_sizes(path, simple, settings.input_shape)
    declared = _declared_input(path, simple)
    freed, batch = free_batch_size(simple)
    refuse(path, freed.graph)
    head, head_notes = take_off_head(path, freed)
    dense_notes = rewrite_dense(freed)
    network = _converted(path, freed)
    check_weights(dict(network.named_parameters()), path)
    taken = replace(declared, batch=batch)
    if head == "none":
        head, unexplained = guard(network, output, trial_batches(taken, batch or TRIALS))
        head_notes += unexplained
    names, ops = _layers(network)
    return Model(
        network=network,
        path=path,
        format="onnx",
        sha256=source.sha256,
        input=taken,
        output=output,
        head=head,
        opset=opset(source.model) or None,
        ops=ops,
        names=names,
        notes=(
            *((preparation_note(prefix),) if prefix is not None else ()),
            *fixed_notes(fixed, values),
            *_batch_notes(declared.batch, batch),
            *_weight_notes(simple, freed),
            *head_notes,
            *dense_notes,
            *_class_notes(source.model, output),
        ),
        classes=tuple(map(str, class_labels(source.model, output))) or None,
        preparation=preparation_of(path, prefix) if prefix is not None else None,
        reference=_reference(source, declared, output, fixed)
        if prefix is None
        else WholeFile(path, source.model, prefix, output, class_labels(source.model, output)),
        reference_name="onnxruntime",
    )


def _declared_input(path: Path, model: ModelProto) -> InputSpec:
    """The input as the file declares it, its own batch size included."""
    name = model.graph.input[0].name
    kind = tensor_type(model.graph.input[0])
    if kind.element not in DTYPES:
        raise ModelError(
            f"{path}: the input {name!r} takes {TensorProto.DataType.Name(kind.element).lower()} numbers, which no "
            "data here can be turned into; export the model with a float input."
        )
    shape = kind.shape[1:] if kind.shape is not None else None
    return InputSpec(name, shape, DTYPES[kind.element], kind.shape[0] if kind.shape else None)


def _converted(path: Path, proto: ModelProto) -> torch.fx.GraphModule:
    try:
        return convert(proto)
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


def _class_notes(model: ModelProto, output: str) -> tuple[str, ...]:
    labels = class_labels(model, output)
    return (f"The file names its classes {', '.join(map(str, labels))}, in this order.",) if labels else ()


def _reference(source: Source, declared: InputSpec, output: str, fixed: list[FixedInput]) -> Reference:
    element = next(number for number, dtype in DTYPES.items() if dtype == declared.dtype)
    labels = class_labels(source.model, output)
    others = {one.name: one.array for one in fixed}
    unquantised = not any(node.op_type == "DequantizeLinear" for node in walk(source.model.graph))
    return Reference(source.path, declared.name, element, output, declared.batch, labels, others, optimise=unquantised)
