"""The tables of a folder as pyarrow reads them, before anything is known of their columns' parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.data.dataset import parse, unreadable
from audit.errors import DataError
from audit.settings import Settings
from audit.settings.limits import require_room

LABELS = ("label", "target", "y", "class")
MOST_UNPACKED = 2**38  # bytes that are counted; no budget is larger
PANDAS_INDEX = ("", "unnamed: 0", "__index_level_0__")


@dataclass(frozen=True)
class Tables:
    """The tables of a folder, train's first, without the columns to drop."""

    by_split: dict[str, Any]
    paths: dict[str, Path]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, files: tuple[Path, ...], layout: str, settings: Settings, texts: Sequence[str] = ()) -> Tables:
        """Read every file; which split it is, its name says. The columns `texts` stay as they are written."""
        paths = _paths(files)
        tables, notes = {}, list[str]()
        for split, path in paths.items():
            require_room(_unpacked(path, layout), settings.memory, path)
            tables[split], said = _load(path, layout, texts)
            notes.extend(said)
        first = next(iter(paths))
        dropped = dropped_columns(tables[first].column_names, paths[first], settings.drop)
        for split, table in tables.items():
            tables[split] = table.drop_columns([name for name in dropped if name in table.column_names])
        notes.extend(f"The column {name!r} was dropped (--drop)." for name in dropped)
        return cls(tables, paths, tuple(notes))

    @property
    def first(self) -> Path:
        """The file whose columns set the order: train's."""
        return next(iter(self.paths.values()))

    @property
    def columns(self) -> list[str]:
        """Its columns."""
        return list(next(iter(self.by_split.values())).column_names)

    @property
    def others(self) -> list[str]:
        """The splits beside it."""
        return list(self.paths)[1:]


def _paths(files: tuple[Path, ...]) -> dict[str, Path]:
    by_split: dict[str, Path] = {}
    for file in files:
        split = parse(stem(file)).split or "all"
        if split in by_split:
            raise DataError(_two_files(by_split[split], file, split))
        by_split[split] = file
    return {split: by_split[split] for split in sorted(by_split, key=lambda split: split != "train")}


def stem(file: Path) -> str:
    """The file's name without its endings."""
    return file.name.removesuffix(".gz").rsplit(".", 1)[0]


def _two_files(first: Path, second: Path, split: str) -> str:
    if split == "all":
        return f"{first.parent}: holds {first.name} and {second.name}, but neither says train or test; rename them."
    return f"{first.parent}: {first.name} and {second.name} both claim the {split} split; keep one of them."


def _unpacked(path: Path, layout: str) -> int:
    """Bytes that a table takes: as its footer says, or counted while it is unpacked and thrown away."""
    import pyarrow
    import pyarrow.parquet

    try:
        if layout == "parquet":
            about = pyarrow.parquet.read_metadata(path)
            groups = [about.row_group(place).total_byte_size for place in range(about.num_row_groups)]
            return int(max(sum(groups), 8 * about.num_rows * about.num_columns))
        if path.suffix.lower() != ".gz":
            return path.stat().st_size
        size = 0
        with pyarrow.input_stream(str(path), compression="gzip") as stream:
            while (piece := len(stream.read(1 << 22))) and size < MOST_UNPACKED:
                size += piece
        return size
    except (pyarrow.ArrowException, OSError, ValueError):
        return 0  # damaged: whoever reads it says how


def _load(path: Path, layout: str, texts: Sequence[str]) -> tuple[Any, list[str]]:
    """The table in memory, freed of a pandas index column."""
    table, notes = (_load_parquet(path), []) if layout == "parquet" else _load_text(path, layout, texts)
    names = table.column_names
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"{path}: has more than one column called {twice[0]!r}; give each column its own name.")
    for name in names:
        if name.lower() in PANDAS_INDEX:
            if not str(table.schema.field(name).type).startswith(("int", "uint")):
                raise DataError(f"{path}: has a column without a name; name it, or remove it.")
            table = table.drop_columns([name])
            notes.append(f"The unnamed index column {name!r} was left out.")
    if table.num_rows == 0:
        raise DataError(f"{path}: has no rows below its header; add samples.")
    return table, notes


def _load_parquet(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path, partitioning=None)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, "parquet", error, "write it again") from error


def image_columns(path: Path) -> tuple[str, ...]:
    """The columns of a parquet file that hold encoded images, {bytes, path}; none where it cannot be read."""
    import pyarrow
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.read_schema(path)
    except (pyarrow.ArrowException, OSError, ValueError):
        return ()
    structs = [field for field in schema if pyarrow.types.is_struct(field.type)]
    return tuple(field.name for field in structs if {part.name for part in field.type} == {"bytes", "path"})


def _load_text(path: Path, layout: str, texts: Sequence[str]) -> tuple[Any, list[str]]:
    import pyarrow
    from pyarrow import csv

    try:
        with pyarrow.input_stream(str(path), compression="detect") as stream:
            header = stream.read(1 << 16).split(b"\n")[0].decode("utf-8-sig")
        mark = "\t" if layout == "tsv" else ";" if ";" in header and "," not in header else ","
        options = csv.ReadOptions(use_threads=False)  # in one thread, so that a parse error can name its row
        kinds = csv.ConvertOptions(column_types=dict.fromkeys(texts, pyarrow.string()))
        parsing = csv.ParseOptions(delimiter=mark)
        table = csv.read_csv(path, read_options=options, parse_options=parsing, convert_options=kinds)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text; save it again in UTF-8.") from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, layout, error, "correct that row, or write the file again") from error
    _refuse_missing_header(path, table.column_names)
    for field in table.schema:
        if pyarrow.types.is_binary(field.type):
            raise DataError(f"{path}: column {field.name!r} is not UTF-8 text; save the file again in UTF-8.")
    return table, ["Columns are separated by semicolons."] if mark == ";" else []


def _refuse_missing_header(path: Path, names: Sequence[str]) -> None:
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    raise DataError(f"{path}: its first row is numbers ({numbers[0]:g}, …); add a header row that names the columns.")


def label_columns(columns: Sequence[str], path: Path, wanted: str | None) -> tuple[str, ...]:
    """The label column, or the several targets of `--label a,b`."""
    listed = shown(columns)
    if wanted is not None:
        names = (wanted,) if wanted in columns else tuple(name.strip() for name in wanted.split(","))
        for name in names:
            if name not in columns:
                raise DataError(f"{path}: has no column {name!r} to use as label; its columns are {listed}.")
        return names
    found = [name for name in columns if name.lower() in LABELS]
    if len(found) != 1:
        problem = (
            f"both {' and '.join(found)} could be the label"
            if found
            else "no column is called label, target, y or class"
        )
        raise DataError(f"{path}: {problem}; choose with --label NAME among {listed}.")
    return (found[0],)


def dropped_columns(columns: Sequence[str], path: Path, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns that `--drop` names, one by one or several separated by commas."""
    names: list[str] = []
    for text in wanted or ():
        names.extend([text] if text in columns else [name.strip() for name in text.split(",")])
    for name in names:
        if name not in columns:
            raise DataError(f"{path}: has no column {name!r} to drop; its columns are {shown(columns)}.")
    return tuple(dict.fromkeys(names))


def shown(columns: Sequence[str]) -> str:
    """The columns in a row; of many, the first and the last, since a label often stands at an end."""
    if len(columns) <= 12:
        return ", ".join(columns)
    return f"{', '.join(columns[:6])}, … ({len(columns) - 12} more), {', '.join(columns[-6:])}"


def named_columns(tables: Tables, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that the model calls so; where none does exactly, one that differs in case and marks alone."""
    loose: dict[str, list[str]] = {}
    for column in tables.columns:
        loose.setdefault(_plain(column), []).append(column)
    found = [name if name in tables.columns else (loose.get(_plain(name)) or [name])[0] for name in names]
    require_columns(found, tables.columns, tables.first, "which the model takes")
    return tuple(found)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def require_columns(wanted: Sequence[str], columns: Sequence[str], path: Path, why: str) -> None:
    """Refuses a table that lacks one of them."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        names = ", ".join(map(repr, missing[:6]))
        what = f"column {names}" if len(missing) == 1 else f"columns {names}"
        raise DataError(f"{path}: has no {what}, {why}; its columns are {shown(columns)}.")


def all_but(label: tuple[str, ...], tables: Tables, count: int) -> tuple[str, ...]:
    """The columns beside the label, as many as the model takes."""
    features = tuple(name for name in tables.columns if name not in label)
    if len(features) != count:
        raise DataError(
            f"{tables.first}: has {len(features)} columns beside the label, {shown(features)}, but the model takes "
            f"{count}; leave out what is no feature with --drop NAME."
        )
    return features
