"""Tables: `train.csv` and `test.csv`, tsv (also .gz) or parquet; one column is the label, every other one a feature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from audit.data.dataset import Array, Folder, Match, Preparation, Rows, Source, Stored, parse, refuse_unknown, several
from audit.data.labels import listed
from audit.data.table_files import Tables, all_but, image_columns, label_columns, named_columns, require_columns, stem
from audit.errors import DataError
from audit.settings import Settings

SUFFIXES = {"csv": (".csv", ".csv.gz"), "tsv": (".tsv", ".tsv.gz"), "parquet": (".parquet", ".pq")}


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The table layouts that the folder speaks for."""
    return [match for layout in SUFFIXES for match in _find_one(folder, settings, layout)]


def _find_one(folder: Folder, settings: Settings, layout: str) -> list[Match]:
    files = [file for file in folder.files if file.name.lower().endswith(SUFFIXES[layout])]
    files = [file for file in files if layout != "parquet" or not image_columns(file)]
    named = [file for file in files if parse(stem(file)).split is not None]
    plain = [file for file in named if not parse(stem(file)).rest]
    chosen = tuple(plain or named or files)
    if not chosen:
        return []
    own = partial(read, chosen, layout, settings, folder.inputs)
    return [Match(layout, chosen, own, partial(read_raw, chosen, layout, settings), named=bool(named))]


def read(files: tuple[Path, ...], layout: str, settings: Settings, inputs: tuple[str, ...] = ()) -> Stored:
    """All tables, with the label taken out and the columns in the first table's order, or by the model's `inputs`."""
    tables = Tables.of(files, layout, settings)
    label = label_columns(tables.columns, tables.first, settings.label)
    features = tuple(name for name in tables.columns if name not in label)
    if not features:
        raise DataError(f"{tables.first}: has no column beside the label {', '.join(label)}; add the feature columns.")
    notes = list(tables.notes)
    for split in tables.others:
        names = tables.by_split[split].column_names
        notes.extend(_agree(names, tables.paths[split], (*features, *label), tables.first))
    by_input = columns_by_input(next(iter(tables.by_split.values())), features, inputs)
    if by_input is not None:
        named = {
            split: source_by_input(table, tables.paths[split], by_input, label, inputs)
            for split, table in tables.by_split.items()
        }
        return Stored(named, label=",".join(label), notes=tuple(dict.fromkeys(notes)))
    splits = {split: _source(table, tables.paths[split], features, label) for split, table in tables.by_split.items()}
    order = f"in the order of {tables.first.name}"
    notes.append(f"Features are the {len(features)} columns beside {', '.join(label)!r}, {order}.")
    return Stored(splits, "features", label=",".join(label), features=features, notes=tuple(dict.fromkeys(notes)))


def _agree(columns: Sequence[str], path: Path, expected: tuple[str, ...], first: Path) -> list[str]:
    """Refuse a table whose columns differ from train's; say so where only their order does."""
    ours, theirs = set(expected), set(columns)
    missing, extra = sorted(ours - theirs), sorted(theirs - ours)
    if missing or extra:
        lacks = [f"lacks {', '.join(map(repr, missing[:6]))}"] if missing else []
        adds = [f"adds {', '.join(map(repr, extra[:6]))}"] if extra else []
        differs = " and ".join(lacks + adds)
        raise DataError(f"{path}: {differs} compared with {first.name}; both tables need the same columns.")
    same = [name for name in columns if name in ours] == [name for name in expected if name in theirs]
    return [] if same else [f"The columns of {path.name} were put in the order of {first.name}."]


def _source(table: Any, path: Path, features: tuple[str, ...], label: tuple[str, ...]) -> Source:
    return Source(label_array(table, path, label), partial(_take, table, path, features), (path,))


def _take(table: Any, path: Path, features: tuple[str, ...], rows: Rows) -> Array:
    check_features(table, path, features)
    chosen = table.select(list(features))
    return matrix(chosen if len(rows) == table.num_rows else chosen.take(rows))


# For a model that prepares its own inputs: columns by its names for them, text and missing values as they are.


def read_raw(files: tuple[Path, ...], layout: str, settings: Settings, preparation: Preparation) -> Stored:
    """All tables with the columns that the model takes, in its order; every other one but the label is left out."""
    tables = Tables.of(files, layout, settings)
    features = named_columns(tables, preparation.names) if preparation.names is not None else ()
    label = label_columns([name for name in tables.columns if name not in features], tables.first, settings.label)
    features = features or all_but(label, tables, len(preparation.kinds))
    texts = [name for name, kind in zip(features, preparation.kinds, strict=True) if kind == "text"]
    tables = Tables.of(files, layout, settings, texts)
    for split in tables.others:
        columns, path = tables.by_split[split].column_names, tables.paths[split]
        require_columns(features, columns, path, "which the model takes")
        require_columns(label, columns, path, f"which is {tables.first.stem}'s label")
    unused = [name for name in tables.columns if name not in (*features, *label)]
    notes = [*tables.notes, f"The model takes the columns {listed(features)}."]
    notes += [f"Columns that the model does not take were not used: {listed(tuple(unused))}."] if unused else []
    splits = {
        split: Source(label_array(table, path, label), partial(_take_raw, table, features), (path,))
        for (split, table), path in zip(tables.by_split.items(), tables.paths.values(), strict=True)
    }
    return Stored(splits, "features", label=",".join(label), features=features, notes=tuple(dict.fromkeys(notes)))


def _take_raw(table: Any, features: tuple[str, ...], rows: Rows) -> Array:
    out = np.empty((len(rows), len(features)), object)
    for place, column in enumerate(table.select(list(features)).take(rows).columns):
        out[:, place] = column.to_pylist()
    return out


# What columns hold, as numbers: features, labels, and a sentence for each that is none.


def check_features(table: Any, path: Path, features: tuple[str, ...]) -> None:
    """Refuse columns that are not numbers, and values that are missing."""
    odd = [name for name in features if not is_number(table.schema.field(name).type)]
    if odd:
        names = ", ".join(repr(name) for name in odd[:6]) + (f" and {len(odd) - 6} more" if len(odd) > 6 else "")
        what = f"column {names} is" if len(odd) == 1 else f"columns {names} are"
        raise DataError(f"{path}: {what} not numeric; {_remedy([table.column(name) for name in odd])}")
    for name in features:
        refuse_missing(table.column(name), path, name)


def _remedy(columns: list[Any]) -> str:
    """Correct a slip among the numbers of one column; encode columns of words."""
    values = columns[0].to_pylist()
    words = [row for row, value in enumerate(values) if value is not None and not _reads_as_number(value)]
    if len(columns) > 1 or not words or 2 * len(words) > len(values):
        return "encode as numbers the way the model was trained, or leave out what is no feature with --drop NAME."
    return f"correct {str(values[words[0]])!r} in row {words[0] + 1} (counted from 1), or encode the column as numbers."


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def label_array(table: Any, path: Path, names: tuple[str, ...]) -> Array:
    """Labels [n] as stored, class names included, or several numeric targets [n, k]."""
    for name in names:
        refuse_missing(table.column(name), path, name)
    if len(names) > 1:
        odd = [name for name in names if not is_number(table.schema.field(name).type)]
        if odd:
            raise DataError(f"{path}: target column {odd[0]!r} is not numeric; several targets must all be numbers.")
        return matrix(table.select(list(names)))
    return _labels(table.column(names[0]), path, names[0])


def _labels(column: Any, path: Path, name: str) -> Array:
    import pyarrow

    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        texts = np.array(column.cast(pyarrow.string()).to_pylist(), dtype=str)
        blank = np.flatnonzero(texts == "")
        if blank.size:
            raise DataError(_missing(path, name, int(blank[0])))
        return texts
    if not is_number(kind):
        raise DataError(f"{path}: label column {name!r} holds {kind} values; labels are class names or numbers.")
    decoded = column.cast(kind)
    decoded = decoded.cast(pyarrow.float64()) if pyarrow.types.is_decimal(kind) else decoded
    return np.asarray(decoded.to_numpy())


def is_number(kind: Any) -> bool:
    """Whether a column of this Arrow type can be fed to a model; an empty (null) column counts, its gaps are named."""
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def refuse_missing(column: Any, path: Path, name: str) -> None:
    """Name the column and the first row that has no value."""
    if column.null_count:
        import pyarrow.compute

        first = pyarrow.compute.index(column.is_null(), True).as_py()
        raise DataError(_missing(path, name, first))


def _missing(path: Path, name: str, row: int) -> str:
    return (
        f"{path}: column {name!r} has no value in row {row + 1} (counted from 1); fill or remove such rows as was done "
        "for training."
    )


def matrix(table: Any) -> Array:
    """All columns as one float64 matrix [n, columns]: tables carry decimal numbers, which float32 would round."""
    import pyarrow

    out = np.empty((table.num_rows, table.num_columns), np.float64)
    for place, column in enumerate(table.columns):
        decimal = pyarrow.types.is_decimal(column.type)
        out[:, place] = (column.cast(pyarrow.float64()) if decimal else column).to_numpy()
    return out


# Tables whose columns are named after a model's inputs: one column each, lists in its cells, or name_0, name_1, ….


Columns = dict[str, tuple[str, ...]]  # by input, in order


def columns_by_input(table: Any, features: Sequence[str], inputs: Sequence[str]) -> Columns | None:
    """The columns of each input; None for an ordinary table, whose columns together are one input."""
    columns: dict[str, list[str]] = {}
    for name in features:
        stem = re.sub(r"[_.]\d+$", "", name)
        columns.setdefault(name if name in inputs or stem not in inputs else stem, []).append(name)
    known = set(columns).intersection(inputs)
    lists = any(_is_list(table, name) for name in features)
    if not lists and (len(inputs) < 2 or not known or len(known) == 1 < len(columns)):
        return None
    return {name: tuple(sorted(each, key=_number)) for name, each in columns.items()}


def _number(name: str) -> int:
    found = re.search(r"\d+$", name)
    return int(found[0]) if found else -1


def source_by_input(table: Any, path: Path, columns: Columns, label: tuple[str, ...], inputs: Sequence[str]) -> Source:
    """The split with a field for each input."""
    refuse_unknown(columns, inputs, f"{path}")
    arrays = {name: _array(table, path, each) for name, each in columns.items()}
    return Source(label_array(table, path, label), partial(_taken, arrays), (path,))


def _taken(arrays: dict[str, Array], rows: Rows) -> Array:
    return several({name: array[rows] for name, array in arrays.items()})


def _array(table: Any, path: Path, names: tuple[str, ...]) -> Array:
    """One input [n], [n, columns] or [n, length of the lists]; whole numbers stay whole."""
    if len(names) == 1 and _is_list(table, names[0]):
        return _lists(table.column(names[0]), path, names[0])
    check_features(table, path, names)
    values = matrix(table.select(list(names)))
    whole = all(str(table.schema.field(name).type).startswith(("int", "uint")) for name in names)
    values = values.astype(np.int64) if whole else values
    return values[:, 0] if len(names) == 1 else values


def _is_list(table: Any, name: str) -> bool:
    from pyarrow import types

    kind = table.schema.field(name).type
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _lists(column: Any, path: Path, name: str) -> Array:
    import pyarrow.compute

    refuse_missing(column, path, name)
    lengths = pyarrow.compute.list_value_length(column).to_numpy()
    if len(np.unique(lengths)) > 1:
        raise DataError(
            f"{path}: column {name!r} has lists of {lengths.min()} to {lengths.max()} numbers; pad them to one length, "
            "and mark the padding in an attention mask if the model takes one."
        )
    values = pyarrow.compute.list_flatten(column)
    if not is_number(values.type) or values.null_count:
        raise DataError(f"{path}: column {name!r} has lists of {values.type} values; expected lists of numbers.")
    return np.asarray(values.to_numpy()).reshape(len(column), -1)
