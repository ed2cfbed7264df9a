"""NumPy files: `train.npz` and `test.npz`, one npz with both splits, or `{train,test}_{x,y}.npy`. Never unpickled."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from audit.data import named
from audit.data.named import Thunk
from audit.data.source import Array, Folder, Match, unreadable
from audit.errors import DataError
from audit.settings import Settings

HEADER = (ValueError, SyntaxError, TypeError, tokenize.TokenError)  # what a damaged npy header is complained about with
BROKEN = (OSError, EOFError, KeyError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error, *HEADER)


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The NumPy layouts that the folder speaks for."""
    return [
        *named.find(folder, "npz", (".npz",), _open_npz),
        *named.find(folder, "npy", (".npy",), _open_npy),
    ]


def _open_npz(path: Path) -> Mapping[str, Thunk]:
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
    except BROKEN as error:
        raise unreadable(path, "an npz archive", error, "write it again with numpy.savez") from error
    return {key: partial(_member, path, key) for key in keys}


def _member(path: Path, key: str) -> Array:
    try:
        with np.load(path, allow_pickle=False) as archive:
            array: Array = archive[key]
    except BROKEN as error:
        _refuse_objects(error, path, f"array {key!r}")
        raise unreadable(path, f"an npz archive at array {key!r}", error, "write it again with numpy.savez") from error
    return array


def _open_npy(path: Path) -> Thunk:
    return partial(_mapped, path)


def _mapped(path: Path) -> Array:
    """The array left on disk until its rows are taken."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except BROKEN as error:
        _refuse_objects(error, path, "the array")
        raise unreadable(path, "an npy array", error, "write it again with numpy.save") from error
    return array


def _refuse_objects(error: BaseException, path: Path, what: str) -> None:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        raise DataError(
            f"{path}: {what} holds pickled Python objects, which are never opened; save it again as plain numbers."
        ) from error
