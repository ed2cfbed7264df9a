"""Fit samples to the model's input: prepared numbers, then the one rearrangement that gives the shape it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from audit.data.dataset import DECODED, Array, Data, Picture, Rows, Split
from audit.data.labels import listed
from audit.data.preprocess import describe_preprocessing, preprocess, to_colour, to_gray
from audit.errors import DataError
from audit.settings import Settings

Shape = tuple[int, ...]
Wanted = tuple["int | None", ...]
Accepts = Callable[[Shape], bool]
Alike = Callable[[Sequence[Array]], bool]

COMPARED = 4
"""Samples on which the answers to several rearrangements are compared."""


@dataclass(frozen=True)
class Way:
    """One rearrangement of a sample: the `--reshape` word for it, the axes it reorders first, the shape it gives."""

    word: str
    shape: Shape
    order: tuple[int, ...] | None = None

    def apply(self, x: Array) -> Array:
        """The rearrangement on [n, ...]."""
        if self.order is not None:
            x = x.transpose(0, *(axis + 1 for axis in self.order))
        return np.ascontiguousarray(x.reshape(len(x), *self.shape))


@dataclass(frozen=True)
class Fitting:
    """How samples become the model's input: as stored, in the channels it takes, and their rearrangement."""

    stored: Data
    way: Way

    def example(self, rows: Rows, settings: Settings) -> Array:
        """These train samples as the model takes them."""
        return _as_fed(self.stored.train.x[rows], self.stored, self.way, settings)

    def fit(self, settings: Settings) -> Data:
        """All samples in the number type and the shape that the model takes, with a note for all that was done."""
        stored, way = self.stored, self.way
        notes = [*stored.notes, *describe_preprocessing(stored.train.x, stored.axes, settings)]
        if way.word != "none":
            notes.append(f"Samples of shape {stored.train.x.shape[1:]} were fitted to {way.shape} ({way.word}).")
        train, test = (_fitted(split, stored, way, settings, name) for name, split in _splits(stored))
        notes.append(f"Inputs as fed range from {_lowest(train, test):g} to {_highest(train, test):g}.")
        return replace(stored, train=train, test=test, notes=tuple(notes), axes="", picture=_picture(stored, way))


def choose_fitting(
    data: Data, shape: Wanted | None, accepts: Accepts | None, settings: Settings, alike: Alike | None = None
) -> Fitting:
    """The one way to bring the samples into the shape that the model takes, or a sentence.

    `shape` is the input's without the batch (None: a free size), or None where the file does not say; then, and where
    several rearrangements match, `accepts` is asked whether the network runs on samples of a shape; and where it runs
    on several, `alike` whether it answers them alike, as one that flattens its input does.
    """
    stored = data
    way = choose(stored, shape, accepts, settings, alike)
    if way is None and data.layout in DECODED and settings.channels == "auto":
        stored = _other_channels(data)
        way = choose(stored, shape, accepts, settings, alike)
    if way is None:
        raise DataError(_no_way(data, shape, settings))
    return Fitting(stored, way)


def _picture(stored: Data, way: Way) -> Picture | None:
    """How to see a fitted sample as the image it was; None where samples are no images."""
    shape = stored.train.x.shape[1:]
    images = stored.axes in ("hw", "hwc", "chw") and ("c" not in stored.axes or shape[stored.axes.index("c")] in (1, 3))
    return Picture(stored.axes, shape, way.order) if images else None


def _lowest(*splits: Split) -> float:
    return min(float(split.x.min()) for split in splits)


def _highest(*splits: Split) -> float:
    return max(float(split.x.max()) for split in splits)


def _splits(data: Data) -> tuple[tuple[str, Split], tuple[str, Split]]:
    return ("train", data.train), ("test", data.test)


def _fitted(split: Split, data: Data, way: Way, settings: Settings, name: str) -> Split:
    x = _as_fed(split.x, data, way, settings)
    bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1))
    if bad.size:
        raise DataError(
            f"{data.path}: {name} sample {split.index[bad[0]] if len(split.index) else bad[0]} is not finite "
            "once scaled; check --scale, --mean, --std and --dtype."
        )
    return replace(split, x=x)


def _as_fed(x: Array, data: Data, way: Way, settings: Settings) -> Array:
    with np.errstate(over="ignore"):
        return way.apply(preprocess(x, data.axes, settings))


def choose(
    data: Data, shape: Wanted | None, accepts: Accepts | None, settings: Settings, alike: Alike | None = None
) -> Way | None:
    """The one way that fits, None where there is none; where several do, the sentence that asks the user."""
    sample = data.train.x.shape[1:]
    candidates = ways(sample, data.axes, shape, settings.reshape)
    fitting = [way for way in candidates if matches(way.shape, shape)]
    as_is = [way for way in fitting if way.word == "none" and data.layout not in DECODED]
    if shape is not None and as_is:
        return as_is[0]
    if accepts is not None and (shape is None or len(fitting) > 1):
        fitting = [way for way in fitting if accepts(way.shape)]
    preferred = [way for way in fitting if way in as_is] or fitting
    if len(preferred) > 1 and alike is not None:
        few = preprocess(data.train.x[:COMPARED], data.axes, settings)
        preferred = preferred[:1] if alike([way.apply(few) for way in preferred]) else preferred
    if len(preferred) > 1 and settings.reshape == "auto" and not (shape is None and accepts is None):
        options = ", or ".join(f"--reshape {way.word} for {way.shape}{_reading(way)}" for way in preferred)
        raise DataError(
            f"{data.path}: samples of shape {sample} fit the model's input {_shown(shape)} in several ways; "
            f"say {options}."
        )
    return preferred[0] if preferred else None


def ways(sample: Shape, axes: str, shape: Wanted | None, asked: str) -> list[Way]:
    """The rearrangements to try: the one asked for, or all that could be meant."""
    size = (math.prod(sample),)
    found = [Way("none", sample)]
    if len(sample) > 1:
        found.append(Way("flatten", size))
    if len(sample) == 3:
        first, last = (2, 0, 1), (1, 2, 0)
        if axes != "chw":
            found.append(Way("to-nchw", _permuted(sample, first), first))
        if axes != "hwc":
            found.append(Way("to-nhwc", _permuted(sample, last), last))
        if (axes == "hwc" and sample[2] > 1) or asked == "flatten-nchw":
            found.append(Way("flatten-nchw", size, first))
        if asked == "flatten-nhwc":
            found.append(Way("flatten-nhwc", size, last))
        if 1 in (sample[0], sample[2]):
            found.append(Way("drop-channel", sample[1:] if sample[0] == 1 else sample[:2]))
    if len(sample) in (1, 2):
        both = ("to-nchw", "to-nhwc") if len(sample) == 2 and asked != "add-channel" else ("add-channel",) * 2
        found += [Way(both[0], (1, *sample)), Way(both[1], (*sample, 1))]
    fixed = tuple(length for length in shape or () if length is not None)
    if asked == "unflatten" and shape is not None and len(fixed) == len(shape) and (math.prod(fixed),) == size:
        found.append(Way("unflatten", fixed))
    return found if asked == "auto" else [way for way in found if way.word == asked]


def matches(shape: Shape, wanted: Wanted | None) -> bool:
    """Whether a sample of this shape goes into the input; a free size takes any."""
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(want in (None, have) for have, want in zip(shape, wanted, strict=True))


def _permuted(sample: Shape, order: tuple[int, ...]) -> Shape:
    return tuple(sample[axis] for axis in order)


def _other_channels(data: Data) -> Data:
    """Colour images as gray ones, or the reverse, for a model that takes the other kind."""
    gray = data.axes == "hw"
    convert = to_colour if gray else to_gray
    train, test = (replace(split, x=convert(split.x)) for _, split in _splits(data))
    words = "Gray images were given three equal channels" if gray else "Colour images were turned gray"
    notes = (*data.notes, f"{words}, as the model's input asks.")
    return replace(data, train=train, test=test, axes="hwc" if gray else "hw", notes=notes)


def _wanted_channels(data: Data, shape: Wanted | None) -> str | None:
    """What `--channels` would make fit: colour images for a model of one channel, or the reverse, of the same size."""
    sample = data.train.x.shape[1:]
    if data.axes not in ("hw", "hwc", "chw"):
        return None
    place = data.axes.find("c")
    count = 1 if place < 0 else sample[place]
    sides = [size for axis, size in enumerate(sample) if axis != place]
    fits = {
        "gray": ([1, *sides], [*sides, 1], sides, [math.prod(sides)]),
        "rgb": ([3, *sides], [*sides, 3], [3 * math.prod(sides)]),
    }
    wanted = "gray" if count == 3 else "rgb" if count == 1 else None
    return wanted if wanted and any(matches(tuple(size), shape) for size in fits[wanted] if shape) else None


def _reading(way: Way) -> str:
    readings = {"flatten": " pixel by pixel", "flatten-nchw": " channel by channel"}
    return readings.get(way.word, "")


def _shown(shape: Wanted | None) -> str:
    if shape is None:
        return "of unstated shape"
    return (
        "("
        + ", ".join("any" if length is None else str(length) for length in shape)
        + ("," if len(shape) == 1 else "")
        + ")"
    )


def _no_way(data: Data, shape: Wanted | None, settings: Settings) -> str:
    """Both shapes and the flag that could bring them together."""
    sample = data.train.x.shape[1:]
    problem = f"{data.path}: samples have shape {sample} but the model's input is {_shown(shape)}"
    fixed = [length for length in shape or () if length is not None]
    if settings.reshape != "auto":
        return f"{problem}, and --reshape {settings.reshape} does not bring them together; try --reshape auto."
    if (channels := _wanted_channels(data, shape)) is not None:
        return f"{problem}; say --channels {channels} if that is what was done in training."
    if data.axes in ("hw", "hwc", "chw") and len(fixed) == 3:
        sides = sorted(fixed, key=lambda length: length in (1, 3, 4))[:2]
        return f"{problem}; resize the images with --resize {sides[0]},{sides[1]} if that was done in training."
    if shape is not None and len(fixed) == len(shape) and math.prod(fixed) == math.prod(sample):
        return f"{problem}; the sizes agree, so --reshape unflatten would fill it row by row."
    if data.features is not None:
        columns = f"{problem}; the table's feature columns are {listed(data.features, 8)}"
        too_many = len(fixed) == len(shape or ()) == 1 and fixed[0] < len(data.features)
        return f"{columns}; leave out what is no feature with --drop NAME." if too_many else f"{columns}."
    return f"{problem}; store the samples in the model's shape, or choose with --reshape."
