"""`Data`: what every layout becomes: two splits of arrays and the words that say how they were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
