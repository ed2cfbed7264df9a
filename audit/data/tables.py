"""Tables: `train.csv` and `test.csv`, tsv (also .gz) or parquet; one column is the label, every other one a feature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from audit.data.columns import check_features, label_array, matrix
from audit.data.source import Array, Folder, Match, Rows, Source, Stored, parse, unreadable
from audit.errors import DataError
from audit.limits import require_room
from audit.settings import Settings

SUFFIXES = {"csv": (".csv", ".csv.gz"), "tsv": (".tsv", ".tsv.gz"), "parquet": (".parquet", ".pq")}
MOST_UNPACKED = 2**38  # bytes that are counted; no budget is larger
LABELS = ("label", "target", "y", "class")
PANDAS_INDEX = ("", "unnamed: 0", "__index_level_0__")


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The table layouts that the folder speaks for."""
    return [match for layout in SUFFIXES for match in _find_one(folder, settings, layout)]


def _find_one(folder: Folder, settings: Settings, layout: str) -> list[Match]:
    files = [file for file in folder.files if file.name.lower().endswith(SUFFIXES[layout])]
    named = [file for file in files if parse(_stem(file)).split is not None]
    plain = [file for file in named if not parse(_stem(file)).rest]
    chosen = tuple(plain or named or files)
    if not chosen:
        return []
    return [Match(layout, chosen, partial(read, chosen, layout, settings), named=bool(named))]


def read(files: tuple[Path, ...], layout: str, settings: Settings) -> Stored:
    """All tables, with the label taken out and the columns in the first table's order."""
    by_split: dict[str, Path] = {}
    for file in files:
        split = parse(_stem(file)).split or "all"
        if split in by_split:
            raise DataError(_two_files(by_split[split], file, split))
        by_split[split] = file
    order = sorted(by_split, key=lambda split: split != "train")  # train's columns set the order
    tables, notes = {}, []
    for split in order:
        require_room(_unpacked(by_split[split], layout), settings.memory, by_split[split])
        tables[split], said = _load(by_split[split], layout)
        notes.extend(said)
    first = by_split[order[0]]
    label = _label_columns(tables[order[0]].column_names, first, settings.label)
    features = tuple(name for name in tables[order[0]].column_names if name not in label)
    if not features:
        raise DataError(f"{first}: has no column beside the label {', '.join(label)}; add the feature columns.")
    for split in order[1:]:
        notes.extend(_agree(tables[split].column_names, by_split[split], (*features, *label), first))
    splits = {split: _source(tables[split], by_split[split], features, label) for split in order}
    notes.append(f"Features are the {len(features)} columns beside {', '.join(label)!r}, in the order of {first.name}.")
    return Stored(splits, "features", label=",".join(label), features=features, notes=tuple(dict.fromkeys(notes)))


def _stem(file: Path) -> str:
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


def _load(path: Path, layout: str) -> tuple[Any, list[str]]:
    """The table in memory, freed of a pandas index column."""
    table, notes = (_load_parquet(path), []) if layout == "parquet" else _load_text(path, layout)
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
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


def _load_text(path: Path, layout: str) -> tuple[Any, list[str]]:
    import pyarrow
    from pyarrow import csv

    try:
        with pyarrow.input_stream(str(path), compression="detect") as stream:
            header = stream.read(1 << 16).split(b"\n")[0].decode("utf-8-sig")
        mark = "\t" if layout == "tsv" else ";" if ";" in header and "," not in header else ","
        options = csv.ReadOptions(use_threads=False)  # in one thread, so that a parse error can name its row
        table = csv.read_csv(path, read_options=options, parse_options=csv.ParseOptions(delimiter=mark))
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


def _label_columns(columns: Sequence[str], path: Path, wanted: str | None) -> tuple[str, ...]:
    """The label column, or the several targets of `--label a,b`."""
    listed = _shown(columns)
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


def _shown(columns: Sequence[str]) -> str:
    """The columns in a row; of many, the first and the last, since a label often stands at an end."""
    if len(columns) <= 12:
        return ", ".join(columns)
    return f"{', '.join(columns[:6])}, … ({len(columns) - 12} more), {', '.join(columns[-6:])}"


def _agree(columns: Sequence[str], path: Path, expected: tuple[str, ...], first: Path) -> list[str]:
    """Refuse a table whose columns differ from train's; say so where only their order does."""
    missing, extra = sorted(set(expected) - set(columns)), sorted(set(columns) - set(expected))
    if missing or extra:
        lacks = [f"lacks {', '.join(map(repr, missing[:6]))}"] if missing else []
        adds = [f"adds {', '.join(map(repr, extra[:6]))}"] if extra else []
        differs = " and ".join(lacks + adds)
        raise DataError(f"{path}: {differs} compared with {first.name}; both tables need the same columns.")
    same = [name for name in columns if name in expected] == [name for name in expected if name in columns]
    return [] if same else [f"The columns of {path.name} were put in the order of {first.name}."]


def _source(table: Any, path: Path, features: tuple[str, ...], label: tuple[str, ...]) -> Source:
    check_features(table, path, features)
    labels = label_array(table, path, label)
    return Source(labels, partial(_take, table, features), (path,))


def _take(table: Any, features: tuple[str, ...], rows: Rows) -> Array:
    chosen = table.select(list(features))
    return matrix(chosen if len(rows) == table.num_rows else chosen.take(rows))
