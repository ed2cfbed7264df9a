"""What the files of a folder of twins must be to be read: they may come from a stranger, as reports do."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from audit.errors import UsageError, readable
from audit.settings.limits import memory_limited, refuse_outside, require_room

ANEW = "make the twins anew in another folder"
CALLED = "folder of twins"
ARRAYS = ("test", "test_losses", "rows", "outcomes", "losses", "answers", "confidence")


def check_own(path: Path) -> None:
    """Refuses a folder that files are written into, where it is a link to another one."""
    if path.is_symlink():
        raise UsageError(f"{path}: is a link, where twins are kept; {ANEW}.")


def found_arrays(paths: Sequence[Path], folder: Path) -> Iterator[dict[str, NDArray[np.generic]]]:
    """The arrays of each file, refused together where they would take more room than the budget."""
    total = 0
    for path in paths:
        check_file(path, folder)
        with readable(UsageError, path, ANEW), zipfile.ZipFile(path) as archive:
            total += sum(member.file_size for member in archive.infolist())
        require_room(total, None, folder)
    for path in paths:
        with readable(UsageError, path, ANEW), memory_limited(None), np.load(path, allow_pickle=False) as arrays:
            read = {name: arrays[name] for name in ARRAYS}
            read["tests"] = arrays["tests"] if "tests" in arrays else np.arange(len(read["test"]))
        if (fault := _arrays_fault(read)) is not None:
            raise UsageError(f"{path}: {fault}; {ANEW}.")
        yield read


def check_file(path: Path, folder: Path) -> None:
    """Refuses what is not there, waits for a writer, or lies elsewhere."""
    refuse_outside(path, folder, CALLED)
    if not path.is_file():
        raise UsageError(f"{path}: is missing, or no ordinary file; {ANEW}.")


def _arrays_fault(arrays: Mapping[str, object]) -> str | None:
    """What does not fit together in the arrays of a twin."""
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        whole = name in ("rows", "tests")
        if not isinstance(array, np.ndarray):  # a member without a header comes as its bytes
            return f"array {name!r} is no array"
        flat = array.ndim == 1 or (array.ndim == 2 and name == "answers")
        if not flat or array.dtype.kind not in ("iu" if whole else "iuf"):
            return f"array {name!r} is not the numbers that belong there"
        if not np.isfinite(array.astype(np.float64)).all() or (whole and (array.astype(np.int64) < 0).any()):
            return f"array {name!r} holds what is no number of a sample"
        sizes[name] = len(array)
    together = (("test", "test_losses"), ("rows", "outcomes", "losses", "answers"))
    unlike = any(len({sizes[name] for name in names}) > 1 for names in together)
    if unlike or sizes["confidence"] not in (0, sizes["rows"]) or sizes["tests"] not in (0, sizes["test"]):
        return "its arrays are not of one length"
    return None
