"""Images in parquet files, as Hugging Face's data sets store them: `train-00000-of-00002.parquet`, `test-….parquet`.

A column `image` (or `img`) holds the encoded bytes of each image, another one the label; class names stand in the
file's metadata. The files lie in the folder or in its `data/`. Images are decoded as those of image folders are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from audit.data.dataset import Array, Folder, Match, Rows, Source, Stored, parse, unreadable, visible
from audit.data.images import Encoded, decode_all
from audit.data.table_files import dropped_columns, image_columns, label_columns
from audit.data.tables import SUFFIXES, label_array
from audit.errors import DataError
from audit.settings import Settings
from audit.settings.limits import require_room

LAYOUT = "image-parquet"
BLOCK = 64  # rows whose encoded images are held at a time
SHARD = re.compile(r"(?P<before>.*-)(?P<number>\d{5})-of-(?P<count>\d{5})(?P<after>.*)")


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The parquet files of the folder, or of its `data/`, that hold images."""
    inner = [visible(place, folder.root or folder.path) for place in folder.folders if place.name == "data"]
    for files in (folder.files, *inner):
        tables = [file for file in files if file.name.lower().endswith(SUFFIXES["parquet"]) and file.is_file()]
        chosen = tuple(file for file in tables if image_columns(file))
        if chosen:
            named = any(parse(file.stem).split is not None for file in chosen)
            return [Match(LAYOUT, chosen, partial(read, chosen, settings), named=named)]
    return []


def read(files: tuple[Path, ...], settings: Settings) -> Stored:
    """The labels of every split; no image is read yet."""
    shards: dict[str, list[Path]] = {}
    for file in files:
        shards.setdefault(parse(file.stem).split or "all", []).append(file)
    first = shards.get("train", list(files))[0]
    schema = _schema(first)
    dropped = dropped_columns(schema.names, first, settings.drop)
    image = _image_column(first, dropped)
    (label, *more) = label_columns(
        [name for name in schema.names if name not in (*dropped, image)], first, settings.label
    )
    if more:
        raise DataError(f"{first}: --label names {len(more) + 1} columns; images have one label, so name one of them.")
    names = _class_names(schema, label)
    sources = {split: _source(_complete(own), image, label, names, settings) for split, own in shards.items()}
    note = f"Images are the column {image!r} and labels {label!r}; other columns were not used."
    return Stored(sources, names=names, label=label, notes=(note,))


def _complete(files: list[Path]) -> tuple[Path, ...]:
    """All parts of one split in their order; a part that was not downloaded is missed."""
    for file in files:
        part = SHARD.fullmatch(file.stem)
        for number in range(int(part["count"]) if part else 0):
            wanted = f"{part['before']}{number:05d}-of-{part['count']}" if part else ""
            if not any(other.stem.startswith(wanted) for other in files):
                raise DataError(
                    f"{file.parent}: {wanted}{file.suffix} is missing beside {file.name}; download all of its parts."
                )
    return tuple(sorted(files))


def _schema(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_schema(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, "parquet", error, "write it again") from error


def _image_column(path: Path, dropped: tuple[str, ...]) -> str:
    found = [name for name in image_columns(path) if name not in dropped]
    if len(found) != 1:
        problem = f"has the image columns {', '.join(found)}" if found else "has no image column left"
        raise DataError(f"{path}: {problem}; leave one, and the others out with --drop.")
    return found[0]


def _class_names(schema: Any, label: str) -> tuple[str, ...] | None:
    """What the metadata that Hugging Face's library writes call the classes."""
    try:
        described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        names = described["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _source(
    files: tuple[Path, ...], image: str, label: str, names: tuple[str, ...] | None, settings: Settings
) -> Source:
    require_room(_unpacked(files), settings.memory, files[0])
    parts = [_labels(file, image, label, names) for file in files]
    ends = np.cumsum([len(part) for part in parts])
    return Source(np.concatenate(parts), partial(_take, dict(zip(files, ends, strict=True)), image, settings), files)


def _unpacked(files: tuple[Path, ...]) -> int:
    """Bytes that are held at most, as the footers say: every label, and one group of rows."""
    import pyarrow
    import pyarrow.parquet

    try:
        footers = [pyarrow.parquet.read_metadata(file) for file in files]
        groups = [about.row_group(place).total_byte_size for about in footers for place in range(about.num_row_groups)]
        return int(8 * sum(about.num_rows for about in footers) + max(groups, default=0))
    except (pyarrow.ArrowException, OSError, ValueError):
        return 0  # damaged: whoever reads it says how


def _labels(path: Path, image: str, label: str, names: tuple[str, ...] | None) -> Array:
    import pyarrow
    import pyarrow.parquet

    columns = _schema(path).names
    for name in (image, label):
        if name not in columns:
            raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(columns)}.")
    try:
        table = pyarrow.parquet.read_table(path, columns=[label], partitioning=None)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, "parquet", error, "download or write it again") from error
    labels = label_array(table, path, (label,))
    if names is None or labels.dtype.kind not in "iu":
        return labels
    odd = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if odd.size:
        raise DataError(
            f"{path}: the label of row {odd[0] + 1} (counted from 1) is {labels[odd[0]]}, but the {len(names)} classes "
            "go from 0 on (-1 marks a split without labels); give labelled samples."
        )
    return np.array(names, dtype=str)[labels]


def _take(ends: Mapping[Path, int], image: str, settings: Settings, rows: Rows) -> Array:
    return decode_all(partial(_images, ends, image, rows), len(rows), settings, next(iter(ends)).parent)


def _images(ends: Mapping[Path, int], image: str, rows: Rows) -> Iterator[Encoded]:
    """The images of these rows, ascending as samples are always taken, block by block out of each file."""
    start = 0
    for path, end in ends.items():
        wanted = set((rows[(rows >= start) & (rows < end)] - start).tolist())
        for first, block in _blocks(path, image) if wanted else ():
            for row in range(first, first + len(block)):
                if row in wanted:
                    yield _encoded(path, row, block[row - first].as_py())
        start = end


def _blocks(path: Path, image: str) -> Iterator[tuple[int, Any]]:
    """The image column in blocks of rows, each with the position of its first row."""
    import pyarrow
    import pyarrow.parquet

    first = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BLOCK, columns=[image]):
                yield first, batch.column(0)
                first += batch.num_rows
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, "parquet", error, "download or write it again") from error


def _encoded(path: Path, row: int, value: Any) -> Encoded:
    name = f"{path}, row {row + 1} (counted from 1)"
    content = (value or {}).get("bytes")
    if not content:
        stored = f"only the path {value['path']!r}" if value and value.get("path") else "nothing"
        raise DataError(f"{name}: holds no image bytes, {stored}; write the data set again with its images embedded.")
    return Encoded(name, content)
