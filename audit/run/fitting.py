"""Brings a model and its data together: samples as the network takes them, several inputs by their names.

And the network in the arithmetic of the audit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from audit.data import choose_fitting
from audit.data.dataset import Data, Split, refuse_unknown, several, spread_rows
from audit.data.feedings import few_of
from audit.data.fit import Fitting
from audit.data.preprocess import default_scale, guess_axes
from audit.errors import DataError, ModelError, UsageError
from audit.model import canonical_form
from audit.model.base import InputSpec, Model, Part, accepts, float_type, quiet, runs
from audit.model.packing import Unpacked, encode, pack, packed_module, parts_of, rows_dtype
from audit.report.conduct import Arithmetic
from audit.settings import Settings

TRACED = 8  # samples, for the first look at a network that does not say what it takes
TRIED = 64  # combinations of number types for the inputs of a module that does not say them
FEATURES = 1024  # numbers of a sample up to which each of them has a name


def fit(model: Model, stored: Data, settings: Settings) -> tuple[Model, Data, Fitting | None]:
    """The model in its canonical form, and the data as it takes them: its number type is seen when it first runs.

    Beside them some samples as they are stored, to be fed in other ways; None where samples have several inputs.
    """
    stored = _without_unused(model, stored)
    names, needed = stored.train.inputs, required(model)
    if names and (len(names) > 1 or len(needed) > 1 or names[0] != model.input.name):
        return (*_fit_several(model, stored, settings), None)
    if len(needed) > 1:
        raise DataError(_one_array(model, stored))
    return _fit_one(replace(model, others=()), _only(names[0], stored) if names else stored, settings)


def required(model: Model) -> list[str]:
    """The inputs that the network does not run without."""
    return [spec.name for spec in model.inputs if not spec.optional]


def known_inputs(model: Model) -> tuple[str, ...]:
    """Every input that the file declares, read or not; none where its own preprocessing looks the columns up."""
    if model.preparation is not None:
        return ()
    return (*(spec.name for spec in model.inputs), *model.unused)


def _fit_one(model: Model, stored: Data, settings: Settings) -> tuple[Model, Data, Fitting]:
    fed = _fed_as(model.input.dtype, settings)
    fitting = choose_fitting(stored, model.input.shape, partial(accepts, model), fed, partial(alike, model))
    example = fitting.example(spread_rows(len(stored.train))[:TRACED], fed)
    model = canonical_form(model, torch.from_numpy(example), settings=settings)
    return model, fitting.fit(_fed_as(model.input.dtype, settings)), few_of(fitting)


def _fed_as(dtype: torch.dtype, settings: Settings) -> Settings:
    """Whole numbers for a network that takes whole numbers, such as tokens, unless another type was asked for."""
    return settings if dtype.is_floating_point or settings.dtype != "auto" else replace(settings, dtype="int64")


def _one_array(model: Model, stored: Data) -> str:
    shapes = ", ".join(_described(spec) for spec in model.inputs if not spec.optional)
    return (
        f"{stored.path}: holds one array of samples, but {model.path} takes several inputs, {shapes}; store each under "
        "its name beside the labels: as arrays of an npz, as columns of a table."
    )


def _described(spec: InputSpec) -> str:
    if spec.shape is None:
        return spec.name
    sizes = ", ".join(["n", *("?" if size is None else str(size) for size in spec.shape)])
    return f"{spec.name} [{sizes}] {str(spec.dtype).removeprefix('torch.')}"


# several inputs


def _without_unused(model: Model, stored: Data) -> Data:
    """The data without inputs that the file declares and does not read."""
    names = stored.train.inputs
    left = [name for name in names if name in model.unused]
    if not left or len(left) == len(names):
        return stored
    kept = [name for name in names if name not in left]
    train, test = (several({name: split.input(name) for name in kept}) for split in (stored.train, stored.test))
    note = f"The model declares {' and '.join(left)}, but its scores do not depend on it; it was left out."
    return replace(_with_samples(stored, train, test), notes=(*stored.notes, note))


def _only(name: str, stored: Data) -> Data:
    """The data with one of their inputs as the samples."""
    train, test = (split.input(name) for split in (stored.train, stored.test))
    return _with_samples(stored, *(x[:, None] if x.ndim == 1 else x for x in (train, test)))


def _with_samples(stored: Data, train: NDArray[Any], test: NDArray[Any]) -> Data:
    shape = train.shape[1:]
    axes = "hw" if train.dtype == np.uint8 and len(shape) == 2 else guess_axes(shape)
    parts: list[Split] = [replace(split, x=x) for split, x in ((stored.train, train), (stored.test, test))]
    return replace(stored, train=parts[0], test=parts[1], axes=stored.axes or axes)


def _fit_several(model: Model, stored: Data, settings: Settings) -> tuple[Model, Data]:
    """Each input fitted by itself, then packed into one row per sample, which the network is made to take."""
    _refuse_flags(settings)
    specs = _named_inputs(model, stored)
    fitted = {spec.name: _fit_input(spec, stored, settings) for spec in specs}
    shapes = {spec.name: () if spec.shape == () else fitted[spec.name].train.x.shape[1:] for spec in specs}
    is_module = model.input.shape is None
    few = {name: data.train.x[spread_rows(len(data.train))[:TRACED]] for name, data in fitted.items()}
    model = module_of_rows(model, specs, few, settings) if is_module else pack(model, shapes)
    parts = model.input.parts
    train, test = (
        encode(parts, {name: getattr(data, split).x for name, data in fitted.items()}) for split in ("train", "test")
    )
    own = [f"{name}: {note}" for name, data in fitted.items() for note in data.notes[len(stored.notes) :]]
    data = replace(_with_samples(stored, train, test), axes="", notes=(*stored.notes, *own))
    return model, replace(data, features=_features(parts))


def _refuse_flags(settings: Settings) -> None:
    for flag in ("scale", "mean", "std"):
        if getattr(settings, flag) is not None:
            raise UsageError(f"--{flag}: samples have several inputs; store them as they are fed and leave it out.")
    if settings.reshape != "auto" or settings.dtype != "auto":
        flag = "reshape" if settings.reshape != "auto" else "dtype"
        raise UsageError(f"--{flag}: samples have several inputs; store each as it is fed and leave it out.")


def _named_inputs(model: Model, stored: Data) -> list[InputSpec]:
    """The model's inputs that the data have, in the model's order; a sentence where the two do not agree."""
    names = stored.train.inputs
    refuse_unknown(names, [spec.name for spec in model.inputs], f"{stored.path}")
    missing = [spec for spec in model.inputs if not spec.optional and spec.name not in names]
    if missing:
        whole = any(not spec.dtype.is_floating_point or "mask" in spec.name.lower() for spec in missing)
        can_hold = not whole and model.format == "onnx"
        hold = ", or hold what never varies with --fix-input NAME=VALUE" if can_hold else ""
        raise DataError(
            f"{stored.path}: holds {', '.join(names)}, but {model.path} also takes "
            f"{', '.join(_described(spec) for spec in missing)}; store it beside them under that name{hold}."
        )
    return [spec for spec in model.inputs if spec.name in names]


def _fit_input(spec: InputSpec, stored: Data, settings: Settings) -> Data:
    """One input as the network takes it."""
    one = _only(spec.name, stored)
    dtype = spec.dtype
    if spec.shape is None and one.train.x.dtype.kind in "biu" and not default_scale(one.train.x, one.axes):
        dtype = torch.bool if one.train.x.dtype.kind == "b" else torch.int64
    try:
        shape = (1,) if spec.shape == () else spec.shape
        return choose_fitting(one, shape, None, _fed_as(dtype, settings)).fit(_fed_as(dtype, settings))
    except DataError as error:
        raise DataError(f"{error} (the input {spec.name!r})") from error


def _features(parts: tuple[Part, ...]) -> tuple[str, ...] | None:
    """A name for each number of a row, where they are few."""
    if parts[-1].stop > FEATURES:
        return None
    return tuple(
        part.name if part.stop - part.start == 1 else f"{part.name}[{k}]"
        for part in parts
        for k in range(part.stop - part.start)
    )


def module_of_rows(
    model: Model, specs: Sequence[InputSpec], few: Mapping[str, NDArray[Any]], settings: Settings
) -> Model:
    """A module, which does not say in what number types it takes its inputs, in the first ones that it runs with.

    `few` samples, [n, ...] of each input, are run.
    """
    shapes = {name: values.shape[1:] for name, values in few.items()}
    options = [[(spec, dtype) for dtype in _dtypes(few[spec.name], float_type(model.network))] for spec in specs]
    for chosen in islice(product(*options), TRIED):
        parts = parts_of([replace(spec, dtype=dtype) for spec, dtype in chosen], shapes)
        rows = _rows(parts, few, float_type(model.network))
        if runs(Unpacked(model.network, parts), rows):
            return packed_module(model, parts, rows, settings)
    shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    raise ModelError(
        f"{model.path}: does not run on the inputs {shown}; check their shapes and number types, and that nothing is "
        f"missing that its forward takes ({', '.join(spec.name for spec in model.inputs)})."
    )


def _rows(parts: tuple[Part, ...], inputs: Mapping[str, NDArray[Any]], floats: torch.dtype) -> Tensor:
    rows = torch.from_numpy(encode(parts, inputs))
    return rows.to(floats) if rows_dtype(parts).is_floating_point else rows


def _dtypes(values: NDArray[Any], floats: torch.dtype) -> Iterator[torch.dtype]:
    """Number types that an array can be fed in, the stored one first."""
    whole = values.dtype.kind in "biu" or bool((values == np.floor(values)).all())
    yield torch.bool if values.dtype.kind == "b" else torch.int64 if values.dtype.kind in "iu" else floats
    yield from [torch.int64] if whole and values.dtype.kind not in "iu" else []
    yield from [floats] if values.dtype.kind != "f" else []
    yield from [torch.bool] if values.dtype.kind != "b" and bool(np.isin(values, (0, 1)).all()) else []


def alike(model: Model, inputs: Sequence[NDArray[Any]]) -> bool:
    """Whether the network gives the same answer to each of these batches."""
    answers = []
    for x in inputs:
        kind = float_type(model.network) if model.input.dtype.is_floating_point else model.input.dtype
        with torch.no_grad(), quiet():
            answers.append(tree_leaves(model.network(torch.from_numpy(np.ascontiguousarray(x)).to(kind))))
    return all(_equal(answers[0], other) for other in answers[1:])


def _equal(first: list[Any], second: list[Any]) -> bool:
    tensors = [[leaf for leaf in leaves if isinstance(leaf, Tensor)] for leaves in (first, second)]
    if [leaf.shape for leaf in tensors[0]] != [leaf.shape for leaf in tensors[1]]:
        return False
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*tensors, strict=True))


def in_precision(network: nn.Module, settings: Settings, arithmetic: Arithmetic) -> nn.Module:
    """The network in the audit's arithmetic, on the audit's device, that nothing will train.

    Weights that are so already are shared, not copied: they may be half of the memory there is, and what changes them
    for a while puts them back.
    """
    dtype = torch.float32 if arithmetic == "float32" else torch.float64
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: this machine has no CUDA device that torch can use; say --device cpu.")
    cuda = settings.device == "cuda" or (settings.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if cuda else "cpu")
    weights = list(network.parameters())
    stay = all(weight.device == device and weight.dtype == dtype for weight in weights if weight.is_floating_point())
    shared = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in weights if stay}
    return copy.deepcopy(network, shared).to(device, dtype).eval().requires_grad_(False)
