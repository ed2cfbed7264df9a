"""From what is stored to `Data`: resolve the two splits, choose the samples, and only then read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from audit.data.dataset import DECODED, Array, Data, Preparation, Rows, Source, Split, Stored, spread_rows
from audit.data.labels import names_labels, neutral, sample, to_indices
from audit.data.preprocess import (
    check_settings,
    feature_names,
    guess_axes,
    prepared,
    resize,
    sides,
    to_colour,
    with_channels,
)
from audit.errors import DataError, UsageError
from audit.settings import Settings


@dataclass(frozen=True)
class Portion:
    """One split of the audit: a source, the rows of it that belong to the split, and those of them in use."""

    name: str
    source: Source
    labels: Array
    rows: Rows
    used: Rows

    @property
    def where(self) -> str:
        """The file to name when something is wrong with this split."""
        return str(self.source.files[0])


def data_from(
    stored: Stored, path: Path, layout: str, settings: Settings, preparation: Preparation | None = None
) -> Data:
    """The samples in use, wherever they are stored; `path` is their name where they lie in no folder."""
    train, test, notes = two_splits(stored, path, settings)
    raw, ours = None, train.source is test.source
    if preparation is not None:
        check_settings(settings)
        raw = _unprepared(train), _unprepared(test)
        train, test = (replace(part, source=prepared(part.source, preparation)) for part in (train, test))
        stored = replace(stored, features=feature_names(stored.features, preparation), axes="features")
    train_x, test_x, axes = _both_samples(train, test, stored, layout, settings)
    _check_shapes(path, train_x, test_x)
    if train.labels.ndim != test.labels.ndim:
        raise DataError(
            f"{path}: train has {_columns(train.labels)} per sample and test {_columns(test.labels)}; "
            "store the labels of both splits alike."
        )
    if settings.channels != "auto" and layout not in DECODED:
        notes.append(f"Stored images, taken to be gray or RGB, were made {settings.channels} (--channels).")
    if settings.resize is not None:
        notes.append(f"Images were resized to {sides(settings.resize)} (bilinear).")
    where = f"{path}: column {stored.label!r}" if stored.label else str(path)
    train_y, test_y, classes, said = to_indices(train.labels, test.labels, stored.names, settings.classes, where)
    return Data(
        train=_split(train, train_x, train_y[train.used]),
        test=_split(test, test_x, test_y[test.used]),
        path=path,
        layout=layout,
        sha256=stored.sha256 or digest(path, train, test),
        files=_files(train, test),
        classes=classes,
        numbered=classes is not None and not names_labels(train.labels, classes),
        label=stored.label,
        features=stored.features,
        notes=(*stored.notes, *notes, *said),
        split_is_ours=ours,
        test_is_validation="val" in stored.splits and not {"test", "all"} & set(stored.splits) and not ours,
        axes=axes,
        raw=raw,
    )


def _unprepared(part: Portion) -> Array:
    """The samples, before the model's own preprocessing, that it is compared with its file on."""
    return part.source.take(part.used[spread_rows(len(part.used))])


def _check_shapes(path: Path, train: Array, test: Array) -> None:
    first, second = _shapes(train), _shapes(test)
    if set(first) != set(second):
        raise DataError(
            f"{path}: train samples have {_inputs(first)} but test samples {_inputs(second)}; store the same in both "
            "splits."
        )
    for name, shape in first.items():
        if shape != second[name]:
            of = f" of {name}" if name else ""
            raise DataError(
                f"{path}: train samples{of} have shape {shape} but test samples {second[name]}; store both splits in "
                "one shape."
            )


def _inputs(shapes: dict[str, tuple[int, ...]]) -> str:
    return f"the inputs {', '.join(shapes)}" if "" not in shapes else "one input without a name"


def _shapes(x: Array) -> dict[str, tuple[int, ...]]:
    """The shape of a sample, under the name of each of its inputs where it has several."""
    return {name: x.dtype[name].shape for name in x.dtype.names} if x.dtype.names else {"": x.shape[1:]}


def _columns(labels: Array) -> str:
    return "one label" if labels.ndim == 1 else f"{labels.shape[1]}"


def _split(part: Portion, x: Array, y: Array) -> Split:
    return Split(x, y, len(part.rows), part.used, content_digest(x, y))


def _both_samples(
    train: Portion, test: Portion, stored: Stored, layout: str, settings: Settings
) -> tuple[Array, Array, str]:
    """The samples in use of both splits, alike in channels and, where asked for, in size; and what their axes are."""
    train_x, test_x = (_samples(part, stored) for part in (train, test))
    if layout in DECODED and train_x.ndim != test_x.ndim:
        train_x, test_x = (x if x.ndim == 4 else to_colour(x) for x in (train_x, test_x))
    axes = _axes(layout, stored, train_x)
    if settings.resize is not None and layout not in DECODED:  # image files were resized as they were decoded
        if train_x.dtype.names:
            raise UsageError("--resize: samples have several inputs; store their images in the size they are fed in.")
        train_x, test_x = (resize(x, axes, settings.resize) for x in (train_x, test_x))
    if settings.channels != "auto" and layout not in DECODED:
        if train_x.dtype.names:
            raise UsageError("--channels: samples have several inputs; store their images as they are fed.")
        (train_x, found), (test_x, _) = (with_channels(x, axes, settings.channels) for x in (train_x, test_x))
        return train_x, test_x, found
    return train_x, test_x, axes


def two_splits(stored: Stored, path: Path, settings: Settings) -> tuple[Portion, Portion, list[str]]:
    """Train and test as the folder names them, or made from its only split on request."""
    splits, notes = dict(stored.splits), []
    if "test" not in splits and "train" in splits and "val" in splits:
        splits["test"] = splits.pop("val")
        notes.append("There is no test split; the validation split takes its place.")
    elif "val" in splits and "test" in splits:
        notes.append("The validation split was not used.")
        splits.pop("val")
    if "train" in splits and "test" in splits:
        if settings.test_fraction is not None:
            raise UsageError(f"--test-fraction: {path} has its own test split, which is used as it is; leave it out.")
        parts = [_whole(name, splits[name]) for name in ("train", "test")]
    elif len(splits) == 1:
        parts = _divided(*next(iter(splits.items())), path, settings)
        notes.append(
            f"The folder has one split; {len(parts[1].rows)} of its {len(parts[1].labels)} samples were held out as "
            "test (--test-fraction): the split is ours, so the gap is not evidence about the release."
        )
    else:
        raise DataError(f"{path}: has the splits {', '.join(splits)} but no train split; add it.")
    train, test = (_capped(part, settings) for part in parts)
    return train, test, notes


def _whole(name: str, source: Source) -> Portion:
    labels = _labels(name, source)
    rows = np.arange(len(labels), dtype=np.int64)
    return Portion(name, source, labels, rows, rows)


def _labels(name: str, source: Source) -> Array:
    if len(source.labels) < 2:
        count = "only one sample" if len(source.labels) else "no samples"
        raise DataError(
            f"{source.files[0] if source.files else name}: the {name} split has {count}; an audit needs at least two."
        )
    return neutral(source.labels, f"{source.files[0]}")


def _divided(name: str, source: Source, path: Path, settings: Settings) -> list[Portion]:
    """One split into two: a seeded, stratified share of it held out."""
    fraction = settings.test_fraction
    if fraction is None:
        only = "is not divided into train and test" if name == "all" else f"has a {name} split only"
        raise DataError(f"{path}: {only}; add the other split, or hold out a share of it with --test-fraction 0.2.")
    if not 0 < fraction < 1:
        raise UsageError(f"--test-fraction: {fraction:g} is not a share between 0 and 1, such as 0.2.")
    whole = _whole(name, source)
    held = sample(whole.labels, round(fraction * len(whole.labels)), settings.seed, "hold out", settings.task)
    kept = np.setdiff1d(whole.rows, held)
    if min(len(held), len(kept)) < 2:
        raise DataError(
            f"{path}: --test-fraction {fraction:g} of {len(whole.labels)} samples leaves {len(kept)} for train and "
            f"{len(held)} for test; an audit needs at least two of each."
        )
    return [Portion("train", source, whole.labels, kept, kept), Portion("test", source, whole.labels, held, held)]


def _capped(part: Portion, settings: Settings) -> Portion:
    cap = settings.samples if part.name == "train" else settings.test_samples
    if not cap or cap >= len(part.rows):
        return part
    if cap < 2:
        flag = "--samples" if part.name == "train" else "--test-samples"
        raise UsageError(f"{flag}: {cap} is too few; use at least two samples, or 0 for all.")
    labels, trained = part.labels[part.rows], part.name == "train"  # a class without train samples has no gap
    chosen = sample(labels, cap, settings.seed, part.name, settings.task, every_class=trained)
    return Portion(part.name, part.source, part.labels, part.rows, part.rows[chosen])


def _samples(part: Portion, stored: Stored) -> Array:
    """The samples in use, refused where they are not finite numbers."""
    x = part.source.take(part.used)
    if x.dtype.names:
        for name in x.dtype.names:
            _check_numbers(x[name], part, stored, f" of {name}")
        return x
    x = x.reshape(len(x), 1) if x.ndim < 2 else x
    _check_numbers(x, part, stored)
    return x


def _check_numbers(x: Array, part: Portion, stored: Stored, of: str = "") -> None:
    if x.dtype.kind not in "biuf":
        raise DataError(
            f"{part.where}: samples{of} of type {x.dtype} are not numbers; store them as floats or integers."
        )
    if x.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1))
        if bad.size:
            column = of or _first_column(x[bad[0]], stored)
            raise DataError(
                f"{part.where}: {part.name} sample {part.used[bad[0]]} (counted from 0){column} is NaN or infinite; "
                "correct or remove it."
            )


def _first_column(row: Array, stored: Stored) -> str:
    if stored.features is None:
        return ""
    return f", column {stored.features[int(np.flatnonzero(~np.isfinite(row))[0])]!r},"


def _axes(layout: str, stored: Stored, x: Array) -> str:
    if stored.axes or x.dtype.names:
        return stored.axes
    if x.dtype == np.uint8 and x.ndim == 3:
        return "hw"
    return "hwc" if layout in DECODED else guess_axes(x.shape[1:])


def _files(*parts: Portion) -> tuple[Path, ...]:
    """Those in use, each once."""
    return tuple(dict.fromkeys(file for part in parts for file in part.source.files_of(part.used)))


def digest(root: Path, *parts: Portion) -> str:
    """sha256 over each file in use: its relative path, size and content, in the order of the paths."""
    total = hashlib.sha256()
    for file in sorted(_files(*parts), key=lambda file: file.relative_to(root).as_posix()):
        total.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                total.update(piece)
    return total.hexdigest()


HASHED = 2**20  # numbers at a time


def content_digest(*arrays: Array) -> str:
    """sha256 over shapes and values: the same samples have the same one in another folder, or in a wider float type.

    >>> content_digest(np.ones(3, np.float32)) == content_digest(np.ones(3)) != content_digest(np.full(3, 1 + 1e-12))
    True
    """
    total = hashlib.sha256()
    for array in arrays:
        kind = np.dtype(np.float32) if _fits_single(array) else array.dtype
        total.update(f"{array.shape}{kind.str}".encode())
        for block in _blocks(array):
            total.update(np.ascontiguousarray(block, dtype=kind).data)
    return total.hexdigest()


def _fits_single(array: Array) -> bool:
    """Whether wide floats are single ones, every one of them."""
    with np.errstate(over="ignore"):
        wide = array.dtype == np.float64
        return wide and all(np.array_equal(block.astype(np.float32), block) for block in _blocks(array))


def _blocks(array: Array) -> Iterator[Array]:
    rows = max(1, HASHED * len(array) // max(array.size, 1))
    return (array[start : start + rows] for start in range(0, len(array), rows))
