"""Which input takes the samples and which output gives the scores, where a file has several of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from audit.errors import ModelError
from audit.model.onnx.graph import FLOATS, producers
from audit.model.onnx.types import TensorType, infer_types, tensor_type


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
    flat = [name for name in scores if _is_flat(types.get(name, TensorType()))]
    best = flat if len(scores) > 1 and flat else scores
    if len(best) > 1:
        raise ModelError(
            f"{path}: several outputs could be the scores: {_listed(best, types)}; choose one with --output NAME."
        )
    return best[0]


def _is_scores(model: ModelProto, name: str, types: dict[str, TensorType]) -> bool:
    maker = producers(model.graph).get(name)
    return (maker is not None and maker.op_type == "ZipMap") or types.get(name, TensorType()).element in FLOATS


def _is_flat(kind: TensorType) -> bool:
    """[n, C] or something that flattens to it without mixing: at most one size besides the batch that is not 1."""
    return kind.shape is None or (len(kind.shape) > 0 and sum(size != 1 for size in kind.shape[1:]) <= 1)


def require_flat(path: Path, name: str, kind: TensorType) -> None:
    """Refuse outputs that hold more than one row of scores per sample."""
    if not _is_flat(kind):
        raise ModelError(
            f"{path}: the output {name!r} has shape {shape_text(kind)}, not one row of scores per sample, which a loss "
            "needs; choose another with --output NAME, or export the model with an output [n, classes]."
        )


def choose_input(path: Path, model: ModelProto, wanted: str | None, held: Collection[str] = ()) -> str:
    """The input that takes the samples; every other one is held at a constant, or has a default value in the file."""
    types = infer_types(model)
    names = [value.name for value in model.graph.input if value.name not in held]
    if wanted is not None and wanted not in names:
        raise ModelError(f"{path}: there is no input {wanted!r}; --input can be one of {_listed(names, types)}.")
    if not names:
        raise ModelError(
            f"{path}: the scores do not depend on any input, so there is nothing to audit; export it again."
        )
    fed = wanted or names[0]
    others = [name for name in names if name != fed]
    if others:
        raise ModelError(
            f"{path}: the model needs {len(names)} inputs at once, {_listed(names, types)}, and only one takes the "
            f"samples; hold the others at a constant, such as --fix-input {','.join(f'{name}=0' for name in others)}."
        )
    return _fit_input(path, fed, types.get(fed, TensorType()))


def _fit_input(path: Path, name: str, kind: TensorType) -> str:
    if kind.element == TensorProto.STRING:
        raise ModelError(f"{path}: the input {name!r} takes text; export the model behind its text encoder instead.")
    if kind.element == 0:
        raise ModelError(f"{path}: the input {name!r} is not a tensor; export the model with a tensor as input.")
    if kind.shape is not None and (not kind.shape or (len(kind.shape) == 1 and kind.shape[0] is not None)):
        raise ModelError(
            f"{path}: the input {name!r} has shape {shape_text(kind)}, one sample without a batch dimension; "
            "export the model with inputs [n, ...]."
        )
    return name


def fix_sizes(path: Path, model: ModelProto, sizes: tuple[int, ...] | None) -> None:
    """Write the sizes of one sample that `--input-shape` names into an input that leaves them open."""
    if sizes is None:
        return
    declared = model.graph.input[0]
    kind = tensor_type(declared)
    rest = kind.shape[1:] if kind.shape is not None else (None,) * len(sizes)
    if len(rest) != len(sizes) or any(own not in (None, size) for own, size in zip(rest, sizes, strict=True)):
        raise ModelError(
            f"{path}: --input-shape {','.join(map(str, sizes))} does not fit the input {declared.name!r}, whose shape "
            f"is {shape_text(kind)}; give the sizes of one sample, without the batch."
        )
    batch = None if kind.shape is None else kind.shape[0]
    free = declared.type.tensor_type.shape.dim[0].dim_param if kind.shape else ""
    fixed = helper.make_tensor_value_info(declared.name, kind.element, [batch or free or "batch", *sizes])
    declared.CopyFrom(fixed)


def shape_text(kind: TensorType) -> str:
    """A shape as people write it: [n, 3, 32, 32]."""
    if kind.shape is None:
        return "of unknown shape"
    sizes = [
        "n" if size is None and axis == 0 else "?" if size is None else str(size)
        for axis, size in enumerate(kind.shape)
    ]
    return f"[{', '.join(sizes)}]"


def _listed(names: list[str], types: dict[str, TensorType]) -> str:
    return ", ".join(f"{name!r} ({_type_text(types.get(name, TensorType()))})" for name in names)


def _type_text(kind: TensorType) -> str:
    if kind.element == 0:
        return "not a tensor"
    return f"{TensorProto.DataType.Name(kind.element).lower()} {shape_text(kind)}"
