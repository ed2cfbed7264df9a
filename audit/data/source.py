"""What every layout reader works with: the folder and the names in it, and the splits that it hands over.

The splits are left as they lie on disk, their samples still unread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.errors import DataError

Array = NDArray[Any]
Rows = NDArray[np.int64]

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "t10k"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
}
ROLES = {
    **dict.fromkeys(("x", "data", "image", "images", "feature", "features", "input", "inputs"), "x"),
    **dict.fromkeys(("y", "label", "labels", "target", "targets"), "y"),
}
POSITIONAL = {"arr_0": "x", "arr_1": "y"}  # what numpy.savez(file, x, y) calls its arguments


@dataclass(frozen=True)
class Source:
    """One split: every label, and the samples behind a function so that only those in use are decoded."""

    labels: Array  # [n] or [n, k]: numbers, or class names as strings
    take: Callable[[Rows], Array]
    files: tuple[Path, ...]  # the files behind the split; with `file_per_sample`, the file of each sample
    file_per_sample: bool = False

    def files_of(self, rows: Rows) -> tuple[Path, ...]:
        """The files that reading these rows touches."""
        return tuple(self.files[row] for row in rows) if self.file_per_sample else self.files


@dataclass(frozen=True)
class Stored:
    """All splits of a folder, keyed "train", "test", "val", or "all" where no split is named."""

    splits: Mapping[str, Source]
    axes: str = ""
    names: tuple[str, ...] | None = None  # class names in their order, where the layout itself lists them
    label: str | None = None
    features: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    sha256: str | None = None  # of samples that lie in no file


@dataclass(frozen=True)
class Match:
    """A layout recognised in a folder by its file names alone; nothing is read before `read` is called."""

    layout: str
    files: tuple[Path, ...]  # the files (for images: folders) that speak for it
    read: Callable[[], Stored]
    named: bool = True  # False: no file name says train or test, so any named match is preferred


@dataclass(frozen=True)
class Folder:
    """The visible contents of one folder, in a fixed order."""

    path: Path
    files: tuple[Path, ...]
    folders: tuple[Path, ...]


def refuse_outside(path: Path, folder: Path) -> None:
    """Refuses a link that leaves the data folder: what it leads to was not given to the audit."""
    target = Path(os.path.realpath(path))  # which a loop of links does not hold
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(folder)):
        raise DataError(
            f"{path}: is a link to {target}, outside the data folder, and is not followed; put the file itself "
            "there, or remove the link."
        )


def unreadable(path: Path, kind: str, error: BaseException, remedy: str) -> DataError:
    """The sentence for a file that its own library cannot read; only the first line of its complaint is kept."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DataError(f"{path}: cannot be read as {kind} ({reason}); {remedy}.")


def same_length(samples: int, labels: int, x: str, y: str) -> None:
    """Refuse a split whose samples and labels do not pair up."""
    if samples != labels:
        raise DataError(f"{x} holds {samples} samples but {y} holds {labels} labels; they must pair up one to one.")


def rows_of(array: Array, rows: Rows) -> Array:
    """The rows of an array in memory, without a copy where all of it is wanted."""
    if len(rows) == len(array) and not isinstance(array, np.memmap):
        return array
    return np.asarray(np.take(array, rows, axis=0))


class Name(NamedTuple):
    """A file's or an array's name taken apart; `rest` holds the words that say nothing, such as the data set's name."""

    split: str | None
    role: str | None
    rest: tuple[str, ...]


def parse(name: str) -> Name:
    """The split and the role that a name states, in any order and case.

    >>> parse("X_train")
    Name(split='train', role='x', rest=())
    >>> parse("mnist-test")
    Name(split='test', role=None, rest=('mnist',))
    """
    if name in POSITIONAL:
        return Name(None, POSITIONAL[name], ())
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    splits = [SPLITS[word] for word in words if word in SPLITS]
    roles = [ROLES[word] for word in words if word in ROLES]
    if len(splits) > 1 or len(roles) > 1:  # "train_test_split" names neither
        return Name(None, None, tuple(words))
    rest = tuple(word for word in words if word not in SPLITS and word not in ROLES)
    return Name(splits[0] if splits else None, roles[0] if roles else None, rest)
