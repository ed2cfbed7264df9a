"""Files of arrays that carry names: npz and npy, safetensors and pt.

A file either is one array, whose role its file name tells (`train_x.npy`), or holds several, whose names tell it
(`train.npz` with x and y; `mnist.npz` with x_train, y_train, x_test, y_test).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from audit.data.array_files import Load, Opener, open_npy, open_npz, open_pt, open_safetensors
from audit.data.dataset import (
    Folder,
    Match,
    Name,
    Source,
    Stored,
    parse,
    refuse_unknown,
    rows_of,
    rows_of_several,
    same_length,
    without_split,
)
from audit.errors import DataError
from audit.settings import Settings


class NamedArray(NamedTuple):
    """One array of a split: where it lies, the name it goes by in messages, and how to load it."""

    file: Path
    called: str
    load: Load
    key: str = ""  # its name in a file that holds several

    @property
    def input(self) -> str:
        """The input that it is named after."""
        return without_split(self.key or self.file.stem)


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The layouts of arrays that the folder speaks for."""
    return [
        *_find(folder, "npz", (".npz",), partial(open_npz, memory=settings.memory)),
        *_find(folder, "npy", (".npy",), open_npy),
        *_find(folder, "safetensors", (".safetensors",), open_safetensors),
        *_find(folder, "pt", (".pt", ".pth"), partial(open_pt, memory=settings.memory)),
    ]


def _find(folder: Folder, layout: str, suffixes: tuple[str, ...], opener: Opener) -> list[Match]:
    """The match for files with these suffixes, or none; plainly named files win over those with extra words."""
    files = [file for file in folder.files if file.suffix.lower() in suffixes]
    named = [file for file in files if parse(file.stem).split is not None]
    plain = [file for file in named if not parse(file.stem).rest]
    by_name = [file for file in named if without_split(file.stem) in folder.inputs]
    labels = [file for file in plain if parse(file.stem).role == "y"]
    chosen = tuple(dict.fromkeys([*plain, *by_name]) if labels != plain else named) or tuple(files)
    if not chosen:
        return []
    return [Match(layout, chosen, partial(read, chosen, opener, folder.inputs), named=bool(named))]


def read(files: tuple[Path, ...], opener: Opener, inputs: tuple[str, ...] = ()) -> Stored:
    """Sort the arrays of all files into splits and pair samples with labels; `inputs` is what the model calls its own.

    Samples are one array, which its name tells (x, images, …), or where there is none, or the model has several inputs
    that arrays are named after, all arrays beside the labels.
    """
    found = [each for file in files for each in _parts(file, opener)]
    if _are_inputs(found, inputs):
        return _by_input(found, inputs)
    parts: dict[str, dict[str, NamedArray]] = {}
    for name, part in found:
        if name.role is None or (name.rest and part.key):
            continue
        roles = parts.setdefault(name.split or "all", {})
        if name.role in roles:
            raise DataError(
                f"{roles[name.role].called} and {part.called} could both be {name.role} of the "
                f"{name.split or 'one'} split; keep one of them."
            )
        roles[name.role] = part
    if not any(len(roles) == 2 for roles in parts.values()):
        raise DataError(_no_pair(files, opener, inputs))
    splits = {split: _source(split, roles) for split, roles in parts.items()}
    taken = ", ".join(part.called for roles in parts.values() for part in roles.values())
    return Stored(splits, notes=(f"Arrays taken: {taken}.",))


def _parts(file: Path, opener: Opener) -> list[tuple[Name, NamedArray]]:
    """Each array in a file with what its own name and the file's name say."""
    outer, content = parse(file.stem), opener(file)
    if not isinstance(content, Mapping):
        return [(outer, NamedArray(file, file.name, content))]
    found = []
    for key, load in content.items():
        inner = parse(key)
        called = f"{file.name}:{key}"
        found.append((inner._replace(split=inner.split or outer.split), NamedArray(file, called, load, key)))
    return found


def _are_inputs(found: list[tuple[Name, NamedArray]], inputs: tuple[str, ...]) -> bool:
    """Whether the arrays beside the labels are inputs by name."""
    known = {part.input for name, part in found if not name.is_labels}.intersection(inputs)
    plain = any(name.role == "x" and (not name.rest or not part.key) for name, part in found)
    return len(known) > 1 or (bool(known) and not plain)


def _by_input(found: list[tuple[Name, NamedArray]], inputs: tuple[str, ...]) -> Stored:
    """Each split's arrays as the inputs they are named after."""
    splits: dict[str, dict[str, NamedArray]] = {}
    for name, part in found:
        roles = splits.setdefault(name.split or "all", {})
        roles["y" if name.is_labels else part.input] = part
    sources = {split: _source_of_several(split, roles, inputs) for split, roles in splits.items()}
    taken = ", ".join(part.called for roles in splits.values() for part in roles.values())
    return Stored(sources, notes=(f"Arrays taken: {taken}.",))


def _source_of_several(split: str, roles: Mapping[str, NamedArray], inputs: tuple[str, ...]) -> Source:
    given = {name: part for name, part in roles.items() if name != "y"}
    first = next(iter(roles.values()))
    if "y" not in roles or not given:
        missing = "y" if "y" not in roles else f"input ({', '.join(inputs)})"
        raise DataError(f"{first.file}: the {split} split has {', '.join(roles)} but no {missing}; add it beside it.")
    refuse_unknown(given, inputs, f"{first.file}")
    labels, arrays = roles["y"].load(), {name: part.load() for name, part in given.items()}
    for name, array in arrays.items():
        if array.ndim == 0:
            raise DataError(f"{given[name].file}: {given[name].called} is a single number; expected one per sample.")
        same_length(len(array), len(labels), f"{given[name].file.parent / given[name].called}", roles["y"].called)
    files = tuple(dict.fromkeys(part.file for part in roles.values()))
    return Source(labels, partial(rows_of_several, arrays), files)


def _source(split: str, roles: Mapping[str, NamedArray]) -> Source:
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


def _no_pair(files: tuple[Path, ...], opener: Opener, inputs: tuple[str, ...]) -> str:
    """What the files do hold, where x and y, or the model's inputs and y, were expected."""
    content = opener(files[0])
    if isinstance(content, Mapping):
        keys = ", ".join(content) or "nothing"
        wanted = f"the model's inputs ({', '.join(inputs)})" if len(inputs) > 1 else "an x (or images, data)"
        return f"{files[0]}: holds {keys}, but needs {wanted} and a y (or labels, target)."
    names = ", ".join(file.name for file in files)
    suffix = files[0].suffix
    return f"{files[0].parent}: holds {names}, but needs pairs such as train_x{suffix} and train_y{suffix}."
