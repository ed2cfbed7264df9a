"""Arrays that carry names, whatever file they lie in: npz and npy, safetensors and pt share this one road.

A file either is one array, whose role its file name tells (`train_x.npy`), or holds several, whose names tell it
(`train.npz` with x and y; `mnist.npz` with x_train, y_train, x_test, y_test).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from audit.data.names import Name, parse
from audit.data.source import Array, Folder, Match, Source, Stored, rows_of, same_length
from audit.errors import DataError

Thunk = Callable[[], Array]
Opener = Callable[[Path], "Thunk | Mapping[str, Thunk]"]


class Part(NamedTuple):
    """One array of a split: where it lies, the name it goes by in messages, and how to load it."""

    file: Path
    called: str
    load: Thunk


def find(folder: Folder, layout: str, suffixes: tuple[str, ...], opener: Opener) -> list[Match]:
    """The match for files with these suffixes, or none; plainly named files win over those with extra words."""
    files = [file for file in folder.files if file.suffix.lower() in suffixes]
    named = [file for file in files if parse(file.stem).split is not None]
    plain = [file for file in named if not parse(file.stem).rest]
    chosen = tuple(plain or named or files)
    if not chosen:
        return []
    return [Match(layout, chosen, partial(read, chosen, opener), named=bool(named))]


def read(files: tuple[Path, ...], opener: Opener) -> Stored:
    """Sort the arrays of all files into splits and pair samples with labels."""
    parts: dict[str, dict[str, Part]] = {}
    for file in files:
        for name, part in _parts(file, opener):
            if name.role is None:
                continue
            roles = parts.setdefault(name.split or "all", {})
            if name.role in roles:
                raise DataError(
                    f"{roles[name.role].called} and {part.called} could both be {name.role} of the "
                    f"{name.split or 'one'} split; keep one of them."
                )
            roles[name.role] = part
    if not any(len(roles) == 2 for roles in parts.values()):
        raise DataError(_no_pair(files, opener))
    splits = {split: _source(split, roles) for split, roles in parts.items()}
    taken = ", ".join(part.called for roles in parts.values() for part in roles.values())
    return Stored(splits, notes=(f"Arrays taken: {taken}.",))


def _parts(file: Path, opener: Opener) -> list[tuple[Name, Part]]:
    """Each array in a file with what its own name and the file's name say."""
    outer, content = parse(file.stem), opener(file)
    if not isinstance(content, Mapping):
        return [(outer, Part(file, file.name, content))]
    found = []
    for key, load in content.items():
        inner = parse(key)
        if not inner.rest:
            split = inner.split or outer.split
            found.append((Name(split, inner.role, ()), Part(file, f"{file.name}:{key}", load)))
    return found


def _source(split: str, roles: Mapping[str, Part]) -> Source:
    if len(roles) < 2:
        (role, part), missing = next(iter(roles.items())), "y" if "x" in roles else "x"
        raise DataError(
            f"{part.file}: the {split} split has {role} ({part.called}) but no {missing}; add it beside it."
        )
    x, y = roles["x"], roles["y"]
    samples, labels = x.load(), y.load()
    for array, part in ((samples, x), (labels, y)):
        if array.ndim == 0:
            raise DataError(f"{part.file}: {part.called} is a single number; expected one entry per sample.")
    same_length(len(samples), len(labels), f"{x.file.parent / x.called}", y.called)
    files = tuple(dict.fromkeys((x.file, y.file)))
    return Source(labels, partial(rows_of, samples), files)


def _no_pair(files: tuple[Path, ...], opener: Opener) -> str:
    """What the files do hold, where x and y were expected."""
    content = opener(files[0])
    if isinstance(content, Mapping):
        keys = ", ".join(content) or "nothing"
        return f"{files[0]}: holds {keys}, but needs an x (or images, data) and a y (or labels, target)."
    names = ", ".join(file.name for file in files)
    suffix = files[0].suffix
    return f"{files[0].parent}: holds {names}, but needs pairs such as train_x{suffix} and train_y{suffix}."
