"""Tables whose columns are named after a model's inputs: one column each, lists in its cells, or name_0, name_1, …."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from audit.data.columns import check_features, is_number, label_array, matrix, refuse_missing
from audit.data.source import Array, Rows, Source, refuse_unknown, several
from audit.errors import DataError

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
    return Source(label_array(table, path, label), partial(_take, arrays), (path,))


def _take(arrays: dict[str, Array], rows: Rows) -> Array:
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
