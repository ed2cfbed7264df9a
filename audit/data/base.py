"""`Data`: what every layout becomes: two splits of arrays and the words that say how they were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """Samples of one split. x [n, ...] in a numeric dtype; y [n] int64 class indices, or float64 [n, k] targets.

    Until `settle_task` has seen the model's outputs, y holds the labels as stored: int64 or float64, [n] or [n, k].
    """

    x: NDArray[np.generic]
    y: NDArray[np.generic]
    total: int  # how many samples the split has on disk; n is smaller when a cap was applied
    index: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # positions in the split as stored
    sha256: str = ""  # over these samples and labels as read

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Data:
    """A train and a test split, ready for the network's input."""

    train: Split
    test: Split
    path: Path
    layout: str  # "npz", "npy", "csv", "tsv", "parquet", "images", "idx", "cifar", "safetensors", "pt"
    sha256: str  # over the names and contents of every file read, in sorted order
    classes: tuple[str, ...] | None  # class names by index; None for regression
    label: str | None = None  # the label column, where there is one
    features: tuple[str, ...] | None = None  # column names of a table
    notes: tuple[str, ...] = ()  # what was done to the inputs, one sentence each
    split_is_ours: bool = False  # the folder had one split and --test-fraction made two
    axes: str = ""  # what a stored sample's axes are: "hw", "hwc", "chw", "features"; "" where unknown, or once fitted
