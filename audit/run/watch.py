"""Whether the files of an audit are still what was read: one that is being written gives numbers of no file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from audit.errors import AuditError, DataError, ModelError

Stamp = tuple[int, int, int]
"""When a file was last written to, its size, and which file it is: a new one may have taken its place and time."""


class Watch:
    """Remembers a model file and the files of a data folder before any of them is read."""

    def __init__(self, model: Path, data: Path) -> None:
        self._model = model
        self._before = {model: _stamp(model)} | {file: _stamp(file) for file in _files(data)}

    def check(self, used: Iterable[Path]) -> None:
        """Refuses the audit where the model, or a file of the data that was used, has changed since."""
        self._refuse_changed(self._model, ModelError, "audit it once it is finished")
        for file in used:
            self._refuse_changed(file, DataError, "audit the data once they are finished")

    def _refuse_changed(self, file: Path, kind: type[AuditError], remedy: str) -> None:
        if file in self._before and _stamp(file) != self._before[file]:
            raise kind(f"{file}: was written to while it was read; {remedy}.")


def _files(folder: Path) -> list[Path]:
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


def _stamp(file: Path) -> Stamp | None:
    """None where there is no file, which its reader will say."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
