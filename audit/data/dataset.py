"""`Data`: what every layout becomes: two splits of arrays and the words that say how they were read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from audit.errors import DataError
from audit.settings.limits import refuse_outside

PARITY_SAMPLES = 64


def spread_rows(samples: int) -> NDArray[np.int64]:
    """The samples of a split on which the network is compared with its file: spread over all of it."""
    return np.linspace(0, samples - 1, min(PARITY_SAMPLES, samples)).astype(np.int64)


@dataclass(frozen=True)
class Split:
    """Samples of one split. x [n, ...] in a numeric dtype; y [n] int64 class indices, or float64 [n, k] targets.

    Until `resolve_task` has seen the model's outputs, y holds the labels as stored: int64 or float64, [n] or [n, k].
    Samples that have several inputs by name are a structured array [n], a field for each, until they are fitted.
    """

    x: NDArray[np.generic]
    y: NDArray[np.generic]
    total: int  # how many samples the split has on disk; n is smaller when a cap was applied
    index: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # positions in the split as stored
    sha256: str = ""  # over these samples and labels as read

    def __len__(self) -> int:
        return len(self.x)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of a sample's inputs, where they have names."""
        return self.x.dtype.names or ()

    def input(self, name: str) -> NDArray[Any]:
        """One of them, [n, ...]."""
        values: NDArray[Any] = self.x[name]  # type: ignore[call-overload]
        return values


@dataclass(frozen=True)
class Picture:
    """How samples that were stored as images and rearranged for the model are seen as images again."""

    axes: str  # of a stored sample: "hw", "hwc" or "chw"
    shape: tuple[int, ...]  # of a stored sample
    order: tuple[int, ...] | None = None  # in which its axes were put, before they were given another shape

    def images(self, x: NDArray[np.generic]) -> NDArray[np.generic]:
        """Samples as fed [n, ...] → [n, height, width, channels]."""
        order = self.order or tuple(range(len(self.shape)))
        x = x.reshape(len(x), *(self.shape[axis] for axis in order))
        x = x.transpose(0, *(order.index(axis) + 1 for axis in range(len(order))))
        return x[..., None] if self.axes == "hw" else np.moveaxis(x, 1, 3) if self.axes == "chw" else x


@dataclass(frozen=True)
class Data:
    """A train and a test split, ready for the network's input."""

    train: Split
    test: Split
    path: Path
    layout: str  # "npz", "npy", "csv", "tsv", "parquet", "images", "image-parquet", "idx", "cifar", …
    sha256: str  # over the names and contents of every file read, in sorted order
    classes: tuple[str, ...] | None  # class names by index; None for regression
    numbered: bool = False  # the labels are stored as places in `classes`, not as these names
    label: str | None = None  # the label column, where there is one
    features: tuple[str, ...] | None = None  # column names of a table
    notes: tuple[str, ...] = ()  # what was done to the inputs, one sentence each
    split_is_ours: bool = False  # the folder had one split and --test-fraction made two
    test_is_validation: bool = False  # the folder had no test split, and its validation split took the place
    axes: str = ""  # what a stored sample's axes are: "hw", "hwc", "chw", "features"; "" where unknown, or once fitted
    raw: tuple[NDArray[np.generic], NDArray[np.generic]] | None = None  # `spread_rows` of train and of test, unprepared
    files: tuple[Path, ...] = ()  # that the samples in use lie in
    picture: Picture | None = None  # where the samples are images, once they are fitted


# What every layout reader works with: the folder and the names in it, and the splits that it hands over.
#
# The splits are left as they lie on disk, their samples still unread.


Array = NDArray[Any]
Rows = NDArray[np.int64]

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "t10k"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
}
ROLES = {
    **dict.fromkeys(("x", "data", "image", "images", "feature", "features", "input", "inputs"), "x"),
    **dict.fromkeys(("y", "label", "labels", "target", "targets"), "y"),
}
DECODED = ("images", "image-parquet")  # layouts whose samples are image files, resized as they are decoded
POSITIONAL = {"arr_0": "x", "arr_1": "y"}  # what numpy.savez(file, x, y) calls its arguments


class Preparation(Protocol):
    """Preprocessing that a model's own file does: raw samples [n, columns], text and gaps included, to features."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each raw column holds: "text", "number" or "whole number"."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The raw columns as the model calls them; None where it takes them by their order."""

    @property
    def columns(self) -> tuple[tuple[int, str], ...] | None:
        """Of each feature, the raw column that it is made from and what its name has behind that column's."""

    @property
    def run(self) -> Callable[[Array], Array]:
        """Raw samples [n, columns] → features [n, k]; a `CellError` for a value that it does not take."""


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
    read_raw: Callable[[Preparation], Stored] | None = None  # as a model that prepares its own inputs takes them
    named: bool = True  # False: no file name says train or test, so any named match is preferred


@dataclass(frozen=True)
class Folder:
    """The visible contents of one folder, in a fixed order."""

    path: Path
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    inputs: tuple[str, ...] = ()  # what the model calls its inputs, where that is known
    root: Path | None = None  # the data folder, where this one lies within it


def visible(path: Path, root: Path) -> list[Path]:
    """What lies in a folder by name, but for hidden entries; none of them leads out of the data folder `root`."""
    entries = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    for entry in entries:
        refuse_outside(entry, root)
    return entries


def unreadable(path: Path, kind: str, error: BaseException, remedy: str) -> DataError:
    """The sentence for a file that its own library cannot read; only the beginning of its complaint is kept."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
    return DataError(f"{path}: cannot be read as {kind} ({reason}); {remedy}.")


def same_length(samples: int, labels: int, x: str, y: str) -> None:
    """Refuse a split whose samples and labels do not pair up."""
    if samples != labels:
        raise DataError(f"{x} holds {samples} samples but {y} holds {labels} labels; they must pair up one to one.")


def rows_of(array: Array, rows: Rows) -> Array:
    """The rows of an array in memory or mapped from a file, without a copy where all of it is wanted."""
    if len(rows) == len(array):
        return np.asarray(array)
    return np.asarray(np.take(array, rows, axis=0))


def several(inputs: Mapping[str, Array]) -> Array:
    """The inputs of each sample, [n, ...] each, as one array [n] that has a field for each input."""
    n = len(next(iter(inputs.values())))
    together = np.empty(n, dtype=[(name, array.dtype, array.shape[1:]) for name, array in inputs.items()])
    for name, array in inputs.items():
        together[name] = array
    return together


def refuse_unknown(given: Iterable[str], inputs: Sequence[str], where: str) -> None:
    """Refuse what is named after no input of the model; without `inputs` nothing is known of them."""
    extra = [name for name in given if inputs and name not in inputs]
    if extra:
        raise DataError(
            f"{where}: holds {', '.join(map(repr, extra))}, which the model does not take; its inputs are "
            f"{', '.join(inputs)}: rename or remove {'it' if len(extra) == 1 else 'them'}."
        )


def rows_of_several(inputs: Mapping[str, Array], rows: Rows) -> Array:
    """The rows of arrays in memory, with a field for each array."""
    return several({name: rows_of(array, rows) for name, array in inputs.items()})


class Name(NamedTuple):
    """A file's or an array's name taken apart; `rest` holds the words that say nothing, such as the data set's name."""

    split: str | None
    role: str | None
    rest: tuple[str, ...]

    @property
    def is_labels(self) -> bool:
        """Whether it says labels and nothing else."""
        return self.role == "y" and not self.rest


def without_split(name: str) -> str:
    """A name without the words that say which split it belongs to.

    >>> without_split("train_input_ids"), without_split("attention_mask"), without_split("image-test")
    ('input_ids', 'attention_mask', 'image')
    """
    words = "|".join(SPLITS)
    return re.sub(rf"^({words})[^a-z0-9]+|[^a-z0-9]+({words})$", "", name, flags=re.IGNORECASE)


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
