"""Every knob of an audit: its name, its default and its one-line meaning.

A value is taken from the first place that names it: command-line flag, environment variable `GEN_AUDIT_<NAME>`,
`gen-audit.toml` (`--config FILE`, or else in the data folder, then in the working folder), `[tool.gen-audit]` in the
`pyproject.toml` of the working folder, the default here.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from audit.config import POLICY, read_document
from audit.errors import UsageError

ENV_PREFIX = "GEN_AUDIT_"
DEFAULT_ORIGIN = "default"


LEAST_AND_MOST: dict[str, tuple[float, float]] = {
    "test_fraction": (0.01, 0.99),
    "samples": (0, 2**31),
    "test_samples": (0, 2**31),
    "seed": (0, 2**31),
    "bootstrap": (10, 10**6),
    "adaptive_draws": (0, 10**6),
    "directions": (1, 4096),
    "widths": (0, 1000),
    "subsets": (1, 10**5),
    "subset_size": (2, 10**4),
    "volume": (1e-300, 1e300),
    "delta": (1e-12, 1.0),
}


def knob(default: Any, meaning: str, *choices: str) -> Any:
    """A setting with its default, its meaning and, where they are few, its allowed words."""
    return field(default=default, metadata={"meaning": meaning, "choices": choices})


@dataclass(frozen=True)
class Settings:
    """All knobs as resolved. The report prints every one of them."""

    # the model
    arch: str | None = knob(None, "package.module:factory or path/to/file.py:factory that builds the network")
    trust_pickle: bool = knob(False, "unpickle a whole nn.Module; this can run code hidden in the file")
    output: str | None = knob(None, "name of the output to audit, where the model has several")
    input: str | None = knob(None, "name of the input to feed, where the model has several")
    fix_input: tuple[str, ...] | None = knob(None, "hold other inputs at a constant: NAME=VALUE,NAME=VALUE (ONNX)")
    input_shape: tuple[int, ...] | None = knob(None, "shape of one sample, where the file leaves sizes open")
    task: str = knob("auto", "what the model does", "auto", "classification", "binary", "regression")
    # the data
    layout: str = knob(
        "auto",
        "which layout to read, where the folder holds several",
        *("auto", "npz", "npy", "csv", "tsv", "parquet", "images", "idx", "cifar", "safetensors", "pt"),
    )
    label: str | None = knob(
        None, "label column of a table, or several targets a,b (default: label, target, y or class)"
    )
    test_fraction: float | None = knob(None, "share of a lone split to hold out as test")
    reshape: str = knob(
        "auto",
        "how samples are fitted to the input",
        *("auto", "none", "flatten", "flatten-nchw", "flatten-nhwc", "unflatten"),
        *("add-channel", "drop-channel", "to-nchw", "to-nhwc"),
    )
    scale: float | None = knob(None, "multiply inputs by this (default: 1/255 for uint8 images, else 1)")
    mean: tuple[float, ...] | None = knob(None, "subtract this after scaling: one number, or one per channel/feature")
    std: tuple[float, ...] | None = knob(None, "divide by this after subtracting the mean")
    resize: tuple[int, ...] | None = knob(None, "height and width that images are resized to")
    channels: str = knob("auto", "how image files are decoded", "auto", "rgb", "bgr", "gray")
    dtype: str = knob("auto", "number type fed to the model", "auto", "float16", "float32", "float64", "int32", "int64")
    classes: tuple[str, ...] | None = knob(None, "class names in the order of the model's outputs")
    # the audit
    samples: int | None = knob(4000, "train samples to use, stratified (0: all)")
    test_samples: int | None = knob(0, "test samples to use, stratified (0: all)")
    seed: int = knob(0, "seed of every random choice")
    bootstrap: int = knob(2000, "bootstrap draws behind intervals")
    adaptive_draws: int = knob(0, "random weight changes behind the sampled adaptive sharpness (0: closed form only)")
    partner_space: str = knob("input", "where a test sample's train partner is looked for", "input", "features")
    conv: bool = knob(False, "decompose convolutions too, approximately (least-squares dual over patches)")
    directions: int = knob(20, "Hessian directions kept of a layer of more than 4,096 weights (or a few more)")
    widths: int = knob(10, "leading directions along which the width of the loss is walked (0: none)")
    subsets: int = knob(100, "subsets of train samples behind the Fisher determinant")
    subset_size: int = knob(100, "train samples in each of them")
    normalized_logits: bool = knob(False, "Fisher determinant of logits divided by 0.04 times their norm")
    volume: float = knob(1.0, "volume of the neighbourhood in the PAC-Bayes bound")
    delta: float = knob(0.05, "probability with which the PAC-Bayes bound may fail")
    memory: str | None = knob(None, "memory budget, such as 2GB (default: a quarter of RAM)")
    precision: str = knob("float64", "arithmetic of the capture pass", "float64", "float32")
    device: str = knob("auto", "where to compute", "auto", "cpu", "cuda")


def read_config(path: Path) -> dict[str, Any]:
    """The settings named in a file; its tables only group them, so `[data] scale = 1` sets `scale`.

    The `[policy]` table holds no settings: `audit.policy` reads it.
    """
    flat: dict[str, Any] = {}
    for key, value in read_document(path).items():
        if key != POLICY:
            flat.update(value if isinstance(value, dict) else {key: value})
    return {_known(key, str(path)): _coerced(key.replace("-", "_"), value, str(path)) for key, value in flat.items()}


def read_environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The settings named by GEN_AUDIT_* variables."""
    named = {key: value for key, value in environ.items() if key.startswith(ENV_PREFIX)}
    return {
        _known(key[len(ENV_PREFIX) :].lower(), key): _coerced(key[len(ENV_PREFIX) :].lower(), value, key)
        for key, value in named.items()
    }


def resolve(
    flags: Mapping[str, Any],
    config: Path | Sequence[Path] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """One `Settings` from flags (None: not given), the environment and configuration files, strongest first."""
    return resolve_with_origins(flags, config, environ)[0]


def resolve_with_origins(
    flags: Mapping[str, Any],
    config: Path | Sequence[Path] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and for each the place that it was taken from."""
    paths = () if config is None else (config,) if isinstance(config, Path) else config
    values: dict[str, Any] = {}
    origins = dict.fromkeys((knob.name for knob in fields(Settings)), DEFAULT_ORIGIN)
    for path in reversed(paths):
        named = read_config(path)
        values, origins = values | named, origins | dict.fromkeys(named, str(path))
    for named, spelt in ((read_environment(environ), _variable), (_given(flags), _flag)):
        values, origins = values | named, origins | {name: spelt(name) for name in named}
    return Settings(**values), origins


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _coerced(name, value, _flag(name)) for name, value in flags.items() if value is not None}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"{ENV_PREFIX}{name.upper()}"


def from_report(values: Mapping[str, Any], where: str) -> Settings:
    """The settings that a report prints; those that it does not print take their defaults."""
    known: dict[str, Any] = {_known(key, where): value for key, value in values.items()}
    given = {key: _coerced(key, value, where) for key, value in known.items() if value is not None}
    return Settings(**(known | given))


def _known(key: str, where: str) -> str:
    name = key.replace("-", "_")
    names = [knob.name for knob in fields(Settings)]
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise UsageError(f"{where}: there is no setting {key!r}; the nearest one is {near!r}.")


def _coerced(name: str, value: Any, where: str) -> Any:
    """`value` in the type of the setting `name`, or a sentence that says what is wrong with it."""
    knob = next(knob for knob in fields(Settings) if knob.name == name)
    kind = str(get_type_hints(Settings)[name]).replace(" | None", "")
    try:
        coerced = _convert(kind, value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {value!r} is not {_kind_in_words(kind)} ({knob.metadata['meaning']}).") from error
    choices = knob.metadata["choices"]
    if choices and coerced not in choices:
        raise UsageError(f"{where}: {value!r} is not one of {', '.join(choices)}.")
    least, most = LEAST_AND_MOST.get(name, (-math.inf, math.inf))
    if name in LEAST_AND_MOST and not least <= coerced <= most:
        raise UsageError(f"{where}: {value!r} is out of range; {name} goes from {least:g} to {most:g}.")
    return coerced


def _kind_in_words(kind: str) -> str:
    if "bool" in kind:
        return "true or false"
    one = "whole number" if "int" in kind else "number"
    return f"a {one}, or several separated by commas" if kind.startswith("tuple") else f"a {one}"


def _convert(kind: str, value: Any) -> Any:
    if kind.startswith("tuple"):
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
        element = float if "float" in kind else int if "int" in kind else str
        return tuple(element(part.strip() if isinstance(part, str) else part) for part in parts)
    if "bool" in kind:
        return _boolean(value)
    if "int" in kind and isinstance(value, float) and not value.is_integer():
        raise ValueError(value)
    return (float if "float" in kind else int if "int" in kind else str)(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]
