"""CIFAR's binary files: `data_batch_*.bin` and `test_batch.bin` (CIFAR-10), or `train.bin` and `test.bin` (CIFAR-100).

A record is one label byte (CIFAR-100: a coarse and a fine one, and the fine one counts) and 3×32×32 pixels.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from audit.data.dataset import Array, Folder, Match, Rows, Source, Stored
from audit.errors import DataError
from audit.settings import Settings

SHAPE = (3, 32, 32)


class Kind(NamedTuple):
    """One of the two data sets: its file names, the label bytes of a record, the file that lists its classes."""

    train: re.Pattern[str]
    test: re.Pattern[str]
    label_bytes: int
    names: str


KINDS = (
    Kind(re.compile(r"data_batch_\d+\.bin"), re.compile(r"test_batch\.bin"), 1, "batches.meta.txt"),
    Kind(re.compile(r"train\.bin"), re.compile(r"test\.bin"), 2, "fine_label_names.txt"),
)


def find(folder: Folder, settings: Settings) -> list[Match]:
    """One match per data set whose batches lie in the folder."""
    matches = []
    for kind in KINDS:
        patterns = {"train": kind.train, "test": kind.test}
        splits = {s: tuple(f for f in folder.files if p.fullmatch(f.name)) for s, p in patterns.items()}
        splits = {split: files for split, files in splits.items() if files}
        if splits:
            matches.append(Match("cifar", sum(splits.values(), ()), partial(read, splits, kind, folder.path)))
    return matches


def read(splits: dict[str, tuple[Path, ...]], kind: Kind, folder: Path) -> Stored:
    """The batches of each split as one run of records, left on disk; classes by name where the folder lists them."""
    listed = _class_names(folder / kind.names)
    sources = {split: _source(files, kind.label_bytes, listed) for split, files in splits.items()}
    return Stored(sources, "chw", names=listed)


def _source(files: tuple[Path, ...], label_bytes: int, listed: tuple[str, ...] | None) -> Source:
    batches = [_records(file, label_bytes) for file in files]
    labels = np.concatenate([batch[:, label_bytes - 1] for batch in batches])
    if listed is None:
        return Source(labels, partial(_pixels, batches, label_bytes), files)
    if labels.max() >= len(listed):
        raise DataError(
            f"{files[0]}: has the label {labels.max()} but only {len(listed)} class names are listed beside it."
        )
    return Source(np.array(listed)[labels], partial(_pixels, batches, label_bytes), files)


def _records(file: Path, label_bytes: int) -> Array:
    size, record = file.stat().st_size, label_bytes + int(np.prod(SHAPE))
    if size == 0 or size % record:
        raise DataError(f"{file}: is {size} bytes, not a whole number of {record}-byte CIFAR records; fetch it again.")
    return np.memmap(file, np.uint8, mode="r").reshape(-1, record)


def _pixels(batches: list[Array], label_bytes: int, rows: Rows) -> Array:
    """The images of the rows, counted over all batches in order."""
    ends = np.cumsum([len(batch) for batch in batches])
    taken = []
    for batch, end in zip(batches, ends, strict=True):
        local = rows[(rows >= end - len(batch)) & (rows < end)] - (end - len(batch))
        taken.append(np.asarray(batch[local, label_bytes:]))
    return np.concatenate(taken).reshape(-1, *SHAPE)


def _class_names(path: Path) -> tuple[str, ...] | None:
    if not path.is_file():
        return None
    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError):
        return None
    return names if len(set(names)) == len(names) and names else None
