"""Tables: `train.csv` and `test.csv`, tsv (also .gz) or parquet; one column is the label, every other one a feature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from audit.data.columns import check_features, columns_by_input, label_array, matrix, source_by_input
from audit.data.dataset import Array, Folder, Match, Preparation, Rows, Source, Stored, parse
from audit.data.labels import listed
from audit.data.table_files import Tables, image_columns, label_columns, shown, stem
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
    missing, extra = sorted(set(expected) - set(columns)), sorted(set(columns) - set(expected))
    if missing or extra:
        lacks = [f"lacks {', '.join(map(repr, missing[:6]))}"] if missing else []
        adds = [f"adds {', '.join(map(repr, extra[:6]))}"] if extra else []
        differs = " and ".join(lacks + adds)
        raise DataError(f"{path}: {differs} compared with {first.name}; both tables need the same columns.")
    same = [name for name in columns if name in expected] == [name for name in expected if name in columns]
    return [] if same else [f"The columns of {path.name} were put in the order of {first.name}."]


def _source(table: Any, path: Path, features: tuple[str, ...], label: tuple[str, ...]) -> Source:
    return Source(label_array(table, path, label), partial(_take, table, path, features), (path,))


def _take(table: Any, path: Path, features: tuple[str, ...], rows: Rows) -> Array:
    check_features(table, path, features)
    chosen = table.select(list(features))
    return matrix(chosen if len(rows) == table.num_rows else chosen.take(rows))


# for a model that prepares its own inputs: columns by its names for them, text and missing values as they are


def read_raw(files: tuple[Path, ...], layout: str, settings: Settings, preparation: Preparation) -> Stored:
    """All tables with the columns that the model takes, in its order; every other one but the label is left out."""
    tables = Tables.of(files, layout, settings)
    features = _named(tables, preparation.names) if preparation.names is not None else ()
    label = label_columns([name for name in tables.columns if name not in features], tables.first, settings.label)
    features = features or _all_but(label, tables, len(preparation.kinds))
    texts = [name for name, kind in zip(features, preparation.kinds, strict=True) if kind == "text"]
    tables = Tables.of(files, layout, settings, texts)
    for split in tables.others:
        columns, path = tables.by_split[split].column_names, tables.paths[split]
        _require(features, columns, path, "which the model takes")
        _require(label, columns, path, f"which is {tables.first.stem}'s label")
    unused = [name for name in tables.columns if name not in (*features, *label)]
    notes = [*tables.notes, f"The model takes the columns {listed(features)}."]
    notes += [f"Columns that the model does not take were not used: {listed(tuple(unused))}."] if unused else []
    splits = {
        split: Source(label_array(table, path, label), partial(_take_raw, table, features), (path,))
        for (split, table), path in zip(tables.by_split.items(), tables.paths.values(), strict=True)
    }
    return Stored(splits, "features", label=",".join(label), features=features, notes=tuple(dict.fromkeys(notes)))


def _named(tables: Tables, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that the model calls so; where none does exactly, one that differs in case and marks alone."""
    loose: dict[str, list[str]] = {}
    for column in tables.columns:
        loose.setdefault(_plain(column), []).append(column)
    found = [name if name in tables.columns else (loose.get(_plain(name)) or [name])[0] for name in names]
    _require(found, tables.columns, tables.first, "which the model takes")
    return tuple(found)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _require(wanted: Sequence[str], columns: Sequence[str], path: Path, why: str) -> None:
    missing = [name for name in wanted if name not in columns]
    if missing:
        names = ", ".join(map(repr, missing[:6]))
        what = f"column {names}" if len(missing) == 1 else f"columns {names}"
        raise DataError(f"{path}: has no {what}, {why}; its columns are {shown(columns)}.")


def _all_but(label: tuple[str, ...], tables: Tables, count: int) -> tuple[str, ...]:
    features = tuple(name for name in tables.columns if name not in label)
    if len(features) != count:
        raise DataError(
            f"{tables.first}: has {len(features)} columns beside the label, {shown(features)}, but the model takes "
            f"{count}; leave out what is no feature with --drop NAME."
        )
    return features


def _take_raw(table: Any, features: tuple[str, ...], rows: Rows) -> Array:
    out = np.empty((len(rows), len(features)), object)
    for place, column in enumerate(table.select(list(features)).take(rows).columns):
        out[:, place] = column.to_pylist()
    return out
