"""From stored numbers to the model's: what the axes are, resizing, gray and colour; scale, mean and std, number type.

Shapes are left to `fit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from audit.data.dataset import Array, Preparation, Rows, Source
from audit.errors import CellError, DataError, UsageError
from audit.settings import Settings, flag

EXACT_IN_FLOAT32 = 2**24
CHANNELS = (1, 3, 4)
BILINEAR = 2  # Pillow's Resampling.BILINEAR, which smooths when it shrinks


def preprocess(x: Array, axes: str, settings: Settings) -> Array:
    """Inputs in the model's number type; one copy, then in place. Channel statistics follow the stored channel axis."""
    if settings.dtype.startswith("int"):
        return _integers(x, settings)
    out = x.astype(working_type(x, settings))
    if settings.scale is not None:
        out *= settings.scale
    elif default_scale(x, axes):
        out /= 255
    if settings.mean is not None:
        out -= _spread(settings.mean, "mean", x.shape[1:], axes, out.dtype)
    if settings.std is not None:
        if 0 in settings.std:
            raise UsageError("--std: 0 cannot be divided by; give the standard deviation used in training.")
        out /= _spread(settings.std, "std", x.shape[1:], axes, out.dtype)
    return out if settings.dtype == "auto" else out.astype(settings.dtype, copy=False)


def describe_preprocessing(x: Array, axes: str, settings: Settings) -> list[str]:
    """The sentences that say what `preprocess` does."""
    notes = []
    if settings.dtype.startswith("int"):
        return [f"Inputs are fed as {settings.dtype}, neither scaled nor shifted."]
    if settings.scale is not None:
        notes.append(f"Inputs were multiplied by {settings.scale:g}.")
    elif default_scale(x, axes):
        notes.append("uint8 pixels were divided by 255, so that they lie in [0, 1].")
    elif x.dtype == np.uint8:
        notes.append(
            "uint8 inputs that are no images were not scaled; if they are flattened pixels, say --scale 0.00392157."
        )
    for name, verb in (("mean", "subtracted"), ("std", "divided by")):
        values = getattr(settings, name)
        if values is not None:
            shown = ", ".join(f"{value:g}" for value in values[:4]) + (", …" if len(values) > 4 else "")
            notes.append(f"The {name} {shown} was {verb}." if name == "mean" else f"Then they were {verb} {shown}.")
    kind = working_type(x, settings) if settings.dtype == "auto" else np.dtype(settings.dtype)
    return [*notes, f"Inputs are {kind}."]


def default_scale(x: Array, axes: str) -> bool:
    """Whether these are uint8 pixels that nobody asked to scale otherwise; flat uint8 rows may be anything."""
    return x.dtype == np.uint8 and x.ndim >= 3 and axes != "features"


def working_type(x: Array, settings: Settings) -> np.dtype[np.floating]:
    """Where float32 would round what is stored (tables, float64 arrays, large integers) float64, else float32."""
    wide = x.dtype.kind == "f" and x.dtype.itemsize > 4
    large = (
        x.dtype.kind in "iu"
        and x.dtype.itemsize > 2
        and x.size > 0
        and max(-int(x.min()), int(x.max())) > EXACT_IN_FLOAT32
    )
    return np.dtype(np.float64 if wide or large or settings.dtype == "float64" else np.float32)


def _integers(x: Array, settings: Settings) -> Array:
    if any(value is not None for value in (settings.scale, settings.mean, settings.std)):
        raise UsageError(
            f"--dtype {settings.dtype}: whole numbers cannot be scaled or shifted; drop --scale, --mean and --std."
        )
    if x.dtype.kind == "f" and not (x == np.floor(x)).all():
        raise DataError(f"--dtype {settings.dtype}: the inputs hold fractions, such as {x[x != np.floor(x)][0]:g}.")
    return x.astype(settings.dtype)


def _spread(
    values: tuple[float, ...], name: str, shape: tuple[int, ...], axes: str, dtype: np.dtype[np.floating]
) -> Array:
    """One number, or one per channel or feature, shaped so that it meets the right axis of [n, *shape]."""
    array = np.array(values, dtype=dtype)
    if len(array) == 1:
        return array
    axis = statistics_axis(len(array), shape, axes)
    if axis is None:
        raise UsageError(
            f"--{name}: {len(array)} numbers were given but samples have shape {shape}; "
            "give one number, or one per channel or feature."
        )
    return array.reshape([len(array) if place == axis else 1 for place in range(len(shape))])


def statistics_axis(count: int, shape: tuple[int, ...], axes: str) -> int | None:
    """The axis of a sample that `count` statistics belong to: its channels, its features, or the only one that long."""
    if "c" in axes:
        return axes.index("c") if shape[axes.index("c")] == count else None
    if len(shape) == 1:
        return 0 if shape[0] == count else None
    if axes == "hw":
        return None
    ends = [axis for axis in (0, len(shape) - 1) if shape[axis] == count]
    return ends[0] if len(ends) == 1 else None


def guess_axes(shape: tuple[int, ...]) -> str:
    """The axes that a sample's shape speaks for; "" where it could be either.

    >>> guess_axes((32, 32, 3)), guess_axes((1, 28, 28)), guess_axes((28, 28)), guess_axes((3, 32, 3))
    ('hwc', 'chw', '', '')
    """
    if len(shape) == 1:
        return "features"
    if len(shape) != 3:
        return ""
    first, last = shape[0] in CHANNELS, shape[-1] in CHANNELS
    if first == last:
        return ""
    return "chw" if first else "hwc"


def sides(size: tuple[int, ...]) -> tuple[int, int]:
    """Height and width that `--resize` names; one number is a square."""
    if len(size) > 2 or min(size) < 1:
        raise UsageError(f"--resize: {','.join(map(str, size))} is not a height and a width, such as 32,32.")
    return size[0], size[-1]


def resize(x: Array, axes: str, size: tuple[int, ...]) -> Array:
    """Images [n, ...] resized plane by plane, antialiased, as image files are when they are decoded."""
    from PIL import Image

    height, width = sides(size)
    if axes not in ("hw", "hwc", "chw"):
        raise UsageError(
            f"--resize: samples of shape {x.shape[1:]} are not images; remove it, or store images as [n, h, w]."
        )
    planes = np.moveaxis(x, 3, 1) if axes == "hwc" else x
    kind = np.uint8 if x.dtype == np.uint8 else np.float32
    out = np.empty((*planes.shape[:-2], height, width), kind)
    for place in np.ndindex(*planes.shape[:-2]):
        plane = Image.fromarray(np.ascontiguousarray(planes[place], kind))
        out[place] = np.asarray(plane.resize((width, height), BILINEAR))
    return np.moveaxis(out, 1, 3) if axes == "hwc" else out


def with_channels(x: Array, axes: str, channels: str) -> tuple[Array, str]:
    """Stored images [n, ...] in the channels that `--channels` names, and their axes: arrays are taken to be RGB."""
    count = 1 if axes == "hw" else x.shape[1 + axes.index("c")] if axes in ("hwc", "chw") else 0
    if count not in (1, 3):
        raise UsageError(
            f"--channels {channels}: samples of shape {x.shape[1:]} are not images of one or three channels; leave it "
            "out, or store images as [n, h, w] or [n, h, w, 3]."
        )
    if count == 1 and channels == "gray":
        return x, axes
    last = x[..., None] if axes == "hw" else np.moveaxis(x, 1, 3) if axes == "chw" else x
    if channels == "gray":
        weights = np.array([0.299, 0.587, 0.114], np.float64 if x.dtype == np.float64 else np.float32)
        return to_gray(last) if x.dtype == np.uint8 else last @ weights, "hw"
    colour = np.repeat(last, 3, axis=-1) if count == 1 else last[..., ::-1] if channels == "bgr" else last
    return np.ascontiguousarray(colour if axes != "chw" else np.moveaxis(colour, 3, 1)), "hwc" if axes == "hw" else axes


def to_gray(x: Array) -> Array:
    """uint8 RGB [n, h, w, 3] to [n, h, w] by the ITU-R 601 weights, rounded as Pillow does."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return np.stack([((image @ weights + 0x8000) >> 16).astype(np.uint8) for image in x])


def to_colour(x: Array) -> Array:
    """Gray [n, h, w] to [n, h, w, 3] with equal channels."""
    return np.repeat(x[..., None], 3, axis=-1)


# Samples through the preprocessing that stands in the model's own file, before anything else is done with them.


BLOCK = 4096  # raw samples that are held at a time
OURS = ("scale", "mean", "std", "resize")


def prepared(source: Source, preparation: Preparation) -> Source:
    """The same split, its samples as the model's preprocessing makes them."""
    where = source.files[0] if source.files else Path("data")
    return replace(source, take=partial(_take, source.take, preparation, where))


def _take(raw: Callable[[Rows], Array], preparation: Preparation, where: Path, rows: Rows) -> Array:
    parts = []
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        try:
            parts.append(preparation.run(_table(raw(block), preparation, where)))
        except CellError as error:
            row = int(block[error.row]) + 1
            raise DataError(
                f"{where}: column {error.column!r} has {error.held} in row {row} (counted from 1), {error.reason}."
            ) from error
    return np.concatenate(parts)


def _table(raw: Array, preparation: Preparation, where: Path) -> Array:
    if raw.ndim != 2 or raw.shape[1] != len(preparation.kinds):
        raise DataError(
            f"{where}: samples have shape {raw.shape[1:]} but the model takes {len(preparation.kinds)} columns; give "
            "them as a table of the columns that the model was trained on."
        )
    return raw


def feature_names(raw: tuple[str, ...] | None, preparation: Preparation) -> tuple[str, ...] | None:
    """What the prepared features are called: by the column each is made from."""
    names = raw or preparation.names
    if names is None or preparation.columns is None:
        return None
    return tuple(f"{names[column]}{behind}" for column, behind in preparation.columns)


def check_settings(settings: Settings) -> None:
    """Whatever would change the samples is the model's own business here."""
    for name in OURS:
        if getattr(settings, name) is not None:
            raise UsageError(f"{flag(name)}: the model file prepares its inputs itself; leave it out.")
