"""Samples through the preprocessing that stands in the model's own file, before anything else is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from audit.data.source import Array, Preparation, Rows, Source
from audit.errors import CellError, DataError, UsageError
from audit.settings import Settings, flag

BLOCK = 4096  # raw samples that are held at a time
OURS = ("scale", "mean", "std", "resize")


def prepared(source: Source, preparation: Preparation) -> Source:
    """The same split, its samples as the model's preprocessing makes them."""
    where = source.files[0] if source.files else Path("data")
    return replace(source, take=partial(_take, source.take, preparation, where))


def _take(raw: Callable[[Rows], Array], preparation: Preparation, where: Path, rows: Rows) -> Array:
    parts = []
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        try:
            parts.append(preparation.run(_table(raw(block), preparation, where)))
        except CellError as error:
            row = int(block[error.row]) + 1
            raise DataError(
                f"{where}: column {error.column!r} has {error.held} in row {row} (counted from 1), {error.reason}."
            ) from error
    return np.concatenate(parts)


def _table(raw: Array, preparation: Preparation, where: Path) -> Array:
    if raw.ndim != 2 or raw.shape[1] != len(preparation.kinds):
        raise DataError(
            f"{where}: samples have shape {raw.shape[1:]} but the model takes {len(preparation.kinds)} columns; give "
            "them as a table of the columns that the model was trained on."
        )
    return raw


def feature_names(raw: tuple[str, ...] | None, preparation: Preparation) -> tuple[str, ...] | None:
    """What the prepared features are called: by the column each is made from."""
    names = raw or preparation.names
    if names is None or preparation.columns is None:
        return None
    return tuple(f"{names[column]}{behind}" for column, behind in preparation.columns)


def check_settings(settings: Settings) -> None:
    """Whatever would change the samples is the model's own business here."""
    for name in OURS:
        if getattr(settings, name) is not None:
            raise UsageError(f"{flag(name)}: the model file prepares its inputs itself; leave it out.")
