"""Table columns as arrays: which are numbers, where a value is missing, what a label column holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from audit.data.source import Array
from audit.errors import DataError


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
        return "encode as numbers the way the model was trained, or remove."
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
