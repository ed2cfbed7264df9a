"""Data: one file per layout, each giving the same `Data`; which layout a folder holds, and its hash.

A new layout is one new file with a `find`, and one line in `READERS`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from audit.data import arrays, cifar, idx, image_parquet, images, tables
from audit.data.dataset import Data, Folder, Match, Preparation, Split, visible
from audit.data.fit import choose_fitting
from audit.data.splits import data_from, digest, two_splits
from audit.data.task import resolve_task
from audit.errors import DataError, UsageError, readable
from audit.settings import Settings
from audit.settings.config import CONFIG_NAME
from audit.settings.limits import memory_limited

READERS = (arrays.find, tables.find, images.find, image_parquet.find, idx.find, cifar.find)
REMEDY = "write or copy the data again"
WANTED = "train and test as .npz, .npy, .csv, .tsv, .parquet, .safetensors, .pt, image folders, idx or CIFAR files"


def read_data(
    path: Path, settings: Settings, inputs: tuple[str, ...] = (), preparation: Preparation | None = None
) -> Data:
    """The train and test samples of a folder, as stored: `resolve_task` and `fit` make them ready for a model.

    Arrays and columns named after the model's `inputs` are found by these names. With a `preparation` the samples are
    what the model's own preprocessing makes of what is stored.
    """
    with readable(DataError, path, REMEDY), memory_limited(settings.memory):
        match = choose_layout(path, settings, inputs)
        if settings.drop and match.layout not in (*tables.SUFFIXES, image_parquet.LAYOUT):
            raise UsageError(f"--drop: the {match.layout} data of {path} have no columns; leave it out.")
        stored = match.read_raw(preparation) if preparation and match.read_raw else match.read()
        return data_from(stored, path, match.layout, settings, preparation)


def data_sha256(path: Path, settings: Settings, inputs: tuple[str, ...] = ()) -> str:
    """The hash that `read_data` would give, without taking the samples."""
    with readable(DataError, path, REMEDY), memory_limited(settings.memory):
        train, test, _ = two_splits(choose_layout(path, settings, inputs).read(), path, settings)
        return digest(path, train, test)


def choose_layout(path: Path, settings: Settings, inputs: tuple[str, ...] = ()) -> Match:
    """The one layout of the folder, or a sentence that says why there is not exactly one."""
    folder = replace(list_folder(path), inputs=inputs)
    matches = find_all(folder, settings)
    if settings.layout != "auto":
        matches = [match for match in matches if match.layout == settings.layout]
    matches = [match for match in matches if match.named] or matches
    if not matches:
        raise DataError(_nothing_found(folder, settings))
    if len(matches) > 1:
        found = " and ".join(f"{match.layout} ({_some(match.files)})" for match in matches)
        flags = " or ".join(f"--layout {match.layout}" for match in matches)
        raise DataError(f"{path}: holds more than one layout, {found}; choose with {flags}, or move one away.")
    return matches[0]


def find_all(folder: Folder, settings: Settings) -> list[Match]:
    """Every layout that the names in the folder speak for."""
    return [match for find in READERS for match in find(folder, settings)]


def list_folder(path: Path, root: Path | None = None) -> Folder:
    """What lies in the folder; hidden entries and the configuration file are not data, nor what lies outside `root`."""
    if not path.exists():
        raise DataError(f"{path}: there is no such folder; give the folder that holds the train and test data.")
    if not path.is_dir():
        raise DataError(f"{path}: is a file; give the folder that holds the train and test data.")
    try:
        entries = visible(path, root or path)
    except OSError as error:
        raise DataError(f"{path}: the folder cannot be listed ({error.strerror}); check its permissions.") from error
    files = tuple(entry for entry in entries if entry.is_file() and entry.name != CONFIG_NAME)
    return Folder(path, files, tuple(entry for entry in entries if entry.is_dir()), root=root)


def _nothing_found(folder: Folder, settings: Settings) -> str:
    if not folder.files and not folder.folders:
        return f"{folder.path}: the folder is empty; expected {WANTED}."
    kind = "no data" if settings.layout == "auto" else f"no {settings.layout} data"
    nested = _nested(folder, settings)
    if nested is not None:
        return f"{folder.path}: {kind} found here, but {nested} looks right; give that folder instead."
    pickled = [file for file in folder.files if file.name == "data_batch_1"]
    if pickled:
        return (
            f"{pickled[0]}: is the pickled CIFAR version, and pickles are never opened; use the binary version (.bin)."
        )
    return f"{folder.path}: {kind} found among {_some(folder.files + folder.folders)}; expected {WANTED}."


def _nested(folder: Folder, settings: Settings, depth: int = 2, root: Path | None = None) -> Path | None:
    """The first folder further down that holds a layout: archives often unpack into a folder of their own."""
    for inner in folder.folders if depth else ():
        listing = list_folder(inner, root or folder.path)
        if any(match.named for match in find_all(listing, settings)):
            return inner
        deeper = _nested(listing, settings, depth - 1, root or folder.path)
        if deeper is not None:
            return deeper
    return None


def _some(paths: tuple[Path, ...], most: int = 4) -> str:
    names = [path.name for path in paths]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


__all__ = ["Data", "Split", "choose_fitting", "data_sha256", "read_data", "resolve_task"]
