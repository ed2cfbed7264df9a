"""What a folder of twins must hold to be gone on with: it may come from a stranger, as reports do."""

from __future__ import annotations

import math
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from audit.errors import UsageError, readable
from audit.settings.limits import memory_limited, refuse_outside, require_room

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from audit.twins import Recipe, Twin, TwinOutcomes

ANEW = "make the twins anew in another folder"
CALLED = "folder of twins"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")  # of a twin's files: no place of another folder can be written so
AT_LEAST = {"rate": 0.0, "batch": 1, "momentum": 0.0, "decay": 0.0, "epochs": 1, "dropout": 0.0}
ARRAYS = ("test", "test_losses", "rows", "outcomes", "losses", "answers", "confidence")


def range_fault(recipe: Recipe) -> str | None:
    """Which number of a recipe no training can have."""
    for name, least in AT_LEAST.items():
        value = getattr(recipe, name)
        if not least <= value < math.inf or (name == "rate" and value == 0) or (name == "dropout" and value >= 1):
            return f"{name} = {value:g} is out of range"
    return None


def check_index(path: Path, twins: Sequence[Twin], recipes: Sequence[Recipe], own: Mapping[str, float]) -> None:
    """Refuses names that are none, the same twin twice, numbers beside none of the model's own, impossible recipes."""
    names = [twin.name for twin in twins]
    for name, twin in zip(names, twins, strict=True):
        if not NAME.fullmatch(name) or not 0 <= twin.seed < 2**63:
            raise UsageError(f"{path}: names a twin {name[:100]!r}, which is no name for its files; {ANEW}.")
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: names the same twin twice; {ANEW}.")
    if own and any(twin.numbers and own.keys().isdisjoint(twin.numbers) for twin in twins):
        raise UsageError(f"{path}: has twins with other numbers than the model's; {ANEW}.")
    for fault in filter(None, map(range_fault, recipes)):
        raise UsageError(f"{path}: has a recipe whose {fault}; {ANEW}.")


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


def check_outcomes(folder: Path, outcomes: Sequence[TwinOutcomes], task: str) -> None:
    """Refuses twins that were not judged on the same test samples, and classes that are none."""
    if len({len(one.test) for one in outcomes}) > 1:
        raise UsageError(f"{folder}: its twins were judged on different numbers of test samples; {ANEW}.")
    answers = [one.unseen.answers for one in outcomes if task != "regression"]
    if any((each != np.floor(each)).any() or (each < 0).any() for each in answers):
        raise UsageError(f"{folder}: its twins answer with what is no class; {ANEW}.")


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
