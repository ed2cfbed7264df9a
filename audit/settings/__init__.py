"""Every setting of an audit: type, default and meaning. `audit.settings.config` says where values come from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Interval

from audit.errors import UsageError

MOST = 2**31


def _group(name: str) -> Callable[[Any, str], Any]:
    """How the settings of one group of `--help` are declared: each with its default and its meaning."""
    return lambda default, meaning: field(default=default, metadata={"group": name, "meaning": meaning})


_model, _data, _measures, _resources = map(_group, ("Model", "Data", "Measures", "Resources"))


@dataclass(frozen=True)
class Settings:
    """All settings as resolved. The report prints every one of them."""

    arch: str | None = _model(None, "package.module:factory or path/to/file.py:factory that builds the network")
    trust_pickle: bool = _model(False, "unpickle a whole nn.Module; this can run code hidden in the file")
    output: str | None = _model(None, "name of the output to audit, where the model has several")
    input: str | None = _model(None, "name of the input to feed, where the model has several")
    fix_input: tuple[str, ...] | None = _model(None, "hold other inputs at a constant: NAME=VALUE,NAME=VALUE (ONNX)")
    input_shape: tuple[int, ...] | None = _model(None, "shape of one sample, where the file leaves sizes open")
    task: Literal["auto", "classification", "binary", "regression", "tagging"] = _model("auto", "what the model does")
    layout: Literal[
        "auto",
        "npz",
        "npy",
        "csv",
        "tsv",
        "parquet",
        "images",
        "image-parquet",
        "idx",
        "cifar",
        "safetensors",
        "pt",
    ] = _data("auto", "which layout to read, where the folder holds several")
    label: str | None = _data(
        None, "label column of a table, or several targets a,b (default: label, target, y or class)"
    )
    drop: tuple[str, ...] | None = _data(None, "column of a table that is no feature, such as an id; may be repeated")
    test_fraction: Annotated[float, Interval(ge=0.01, le=0.99)] | None = _data(
        None, "share of a lone split to hold out as test"
    )
    reshape: Literal[
        "auto",
        "none",
        "flatten",
        "flatten-nchw",
        "flatten-nhwc",
        "unflatten",
        "add-channel",
        "drop-channel",
        "to-nchw",
        "to-nhwc",
    ] = _data("auto", "how samples are fitted to the input")
    scale: float | None = _data(None, "multiply inputs by this (default: 1/255 for uint8 images, else 1)")
    mean: tuple[float, ...] | None = _data(None, "subtract this after scaling: one number, or one per channel/feature")
    std: tuple[float, ...] | None = _data(None, "divide by this after subtracting the mean")
    resize: tuple[int, ...] | None = _data(None, "height and width that images are resized to")
    channels: Literal["auto", "rgb", "bgr", "gray"] = _data(
        "auto", "how image files are decoded, and what RGB or gray arrays become"
    )
    dtype: Literal["auto", "float16", "float32", "float64", "int32", "int64"] = _data(
        "auto", "number type fed to the model"
    )
    classes: tuple[str, ...] | None = _data(None, "class names in the order of the model's outputs")
    samples: Annotated[int, Interval(ge=0, le=MOST)] | None = _data(4000, "train samples to use, stratified (0: all)")
    test_samples: Annotated[int, Interval(ge=0, le=MOST)] | None = _data(0, "test samples to use, stratified (0: all)")
    seed: Annotated[int, Interval(ge=0, le=MOST)] = _measures(0, "seed of every random choice")
    bootstrap: Annotated[int, Interval(ge=10, le=10**6)] = _measures(2000, "bootstrap draws behind intervals")
    adaptive_draws: Annotated[int, Interval(ge=0, le=10**6)] = _measures(
        0, "random weight changes behind the sampled adaptive sharpness (0: closed form only)"
    )
    partner_space: Literal["input", "features"] = _measures(
        "input", "where a test sample's train partner is looked for"
    )
    conv: bool = _measures(False, "decompose convolutions too, approximately (least-squares dual over patches)")
    directions: Annotated[int, Interval(ge=1, le=4096)] = _measures(
        20, "Hessian directions kept of a layer of more than 4,096 weights (or a few more)"
    )
    widths: Annotated[int, Interval(ge=0, le=1000)] = _measures(
        10, "leading directions along which the width of the loss is walked (0: none)"
    )
    subsets: Annotated[int, Interval(ge=1, le=10**5)] = _measures(
        100, "subsets of train samples behind the Fisher determinant"
    )
    subset_size: Annotated[int, Interval(ge=2, le=10**4)] = _measures(100, "train samples in each of them")
    normalized_logits: bool = _measures(False, "Fisher determinant of logits divided by 0.04 times their norm")
    volume: Annotated[float, Interval(ge=1e-300, le=1e300)] = _measures(
        1.0, "volume of the neighbourhood in the PAC-Bayes bound"
    )
    delta: Annotated[float, Interval(ge=1e-12, le=1.0)] = _measures(
        0.05, "probability with which the PAC-Bayes bound may fail"
    )
    budget: str = _resources(
        "5m", "time budget, such as 90s, 5m, 1h or none: what does not fit is sampled, and says so"
    )
    memory: str | None = _resources(None, "memory budget, such as 2GB (default: a quarter of RAM)")
    quick: bool = _resources(False, "gap, classes, calibration, hygiene and the head layer only: seconds")
    precision: Literal["float64", "float32"] = _resources("float64", "arithmetic of the capture pass")
    device: Literal["auto", "cpu", "cuda"] = _resources("auto", "where to compute")


@dataclass(frozen=True)
class Kind:
    """What the type of a setting says about its values."""

    plain: type  # bool, int, float or str
    several: bool = False
    choices: tuple[str, ...] = ()
    limits: Interval | None = None

    def __str__(self) -> str:
        """The kind in words, for a sentence about a value that is of another one."""
        one = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[self.plain]
        return f"{one}, or several separated by commas" if self.several else one


def _kind(hint: Any) -> Kind:
    hint = get_args(hint)[0] if type(None) in get_args(hint) else hint
    if get_origin(hint) is Literal:
        return Kind(str, choices=get_args(hint))
    if get_origin(hint) is tuple:
        return Kind(get_args(hint)[0], several=True)
    if get_origin(hint) is Annotated:
        plain, limits = get_args(hint)
        return Kind(plain, limits=limits)
    return Kind(hint)


TYPES: dict[str, Any] = get_type_hints(Settings, include_extras=True)
KINDS = {name: _kind(hint) for name, hint in TYPES.items()}


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return f"--{name.replace('_', '-')}"


def as_arguments(text: str) -> str:
    """A sentence about flags as one about the arguments of a function.

    >>> as_arguments("--budget: soon is no amount of time; say --device cpu, or lower --test-samples.")
    'budget: soon is no amount of time; say device="cpu", or lower test_samples.'
    """

    def argument(found: re.Match[str]) -> str:
        name, value = found[1].replace("-", "_"), found[2]
        if name not in KINDS:
            return found[0]
        if value is None:
            return name
        chosen = value[1:] in KINDS[name].choices or value[1:].isupper() or "=" in value
        return f'{name}="{value[1:]}"' if chosen else f"{name}{value}"

    return re.sub(r"--([a-z][a-z-]*[a-z])( [\w=]+)?", argument, text)


def from_report(values: Mapping[str, Any], where: str) -> Settings:
    """The settings that a report prints; those that it does not print take their defaults."""
    return Settings(**values_at((where, key, value) for key, value in values.items()))


def values_at(places: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Settings by name, from where each stands, how it is called there, and its value there."""
    return {(name := known_name(key, where)): _coerced(name, value, where) for where, key, value in places}


def known_name(key: str, where: str) -> str:
    """The one name of a setting, with underscores, or a sentence that says that there is none."""
    name = key.replace("-", "_")
    if name in KINDS:
        return name
    near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.0)[0]
    raise UsageError(f"{where}: there is no setting {key!r}; the nearest one is {near!r}.")


def _coerced(name: str, value: Any, where: str) -> Any:
    """`value` in the type of the setting `name`, or a sentence that says what is wrong with it."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # not for `--help`

    listed = _listed(value) if KINDS[name].several and value is not None else value
    if KINDS[name].plain is not bool and (isinstance(value, bool) or _holds_bool(listed)):
        raise UsageError(f"{where}: {value!r} is {_wrong(name, 'bool')}.")  # which Python counts as 0 or 1
    adapter = TypeAdapter(TYPES[name], config=ConfigDict(coerce_numbers_to_str=True))
    try:
        return adapter.validate_python(listed)
    except ValidationError as error:
        raise UsageError(f"{where}: {value!r} is {_wrong(name, error.errors()[0]['type'])}.") from error


def _holds_bool(values: Any) -> bool:
    return isinstance(values, list) and any(isinstance(one, bool) for one in values)


def _listed(value: Any) -> list[Any]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    return [part.strip() if isinstance(part, str) else part for part in parts]


def _wrong(name: str, problem: str) -> str:
    kind, meaning = KINDS[name], {one.name: one.metadata["meaning"] for one in fields(Settings)}[name]
    if kind.choices:
        return f"not one of {', '.join(kind.choices)}"
    if kind.limits is not None and problem in ("greater_than_equal", "less_than_equal"):
        return f"out of range; {name} goes from {kind.limits.ge:g} to {kind.limits.le:g}"
    return f"not {kind} ({meaning})"
