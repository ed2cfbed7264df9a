"""Files of arrays that carry names: npz and npy, safetensors and pt.

A file either is one array, whose role its file name tells (`train_x.npy`), or holds several, whose names tell it
(`train.npz` with x and y; `mnist.npz` with x_train, y_train, x_test, y_test). Nothing is unpickled: a `.pt` file is
only opened with weights_only, so it cannot run code.
"""

from __future__ import annotations

import lzma
import math
import pickle
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from audit.data.source import Array, Folder, Match, Name, Source, Stored, parse, rows_of, same_length, unreadable
from audit.errors import DataError
from audit.limits import require_room
from audit.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

HEADER = (ValueError, SyntaxError, TypeError, tokenize.TokenError)  # what a damaged npy header is complained about with
BROKEN = (
    *(OSError, EOFError, KeyError, MemoryError, NotImplementedError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, *HEADER),
)

Load = Callable[[], Array]
Opener = Callable[[Path], "Load | Mapping[str, Load]"]


class NamedArray(NamedTuple):
    """One array of a split: where it lies, the name it goes by in messages, and how to load it."""

    file: Path
    called: str
    load: Load


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The layouts of arrays that the folder speaks for."""
    return [
        *_find(folder, "npz", (".npz",), partial(_open_npz, memory=settings.memory)),
        *_find(folder, "npy", (".npy",), _open_npy),
        *_find(folder, "safetensors", (".safetensors",), _open_safetensors),
        *_find(folder, "pt", (".pt", ".pth"), partial(_open_pt, memory=settings.memory)),
    ]


def _find(folder: Folder, layout: str, suffixes: tuple[str, ...], opener: Opener) -> list[Match]:
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
    parts: dict[str, dict[str, NamedArray]] = {}
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


def _parts(file: Path, opener: Opener) -> list[tuple[Name, NamedArray]]:
    """Each array in a file with what its own name and the file's name say."""
    outer, content = parse(file.stem), opener(file)
    if not isinstance(content, Mapping):
        return [(outer, NamedArray(file, file.name, content))]
    found = []
    for key, load in content.items():
        inner = parse(key)
        if not inner.rest:
            split = inner.split or outer.split
            found.append((Name(split, inner.role, ()), NamedArray(file, f"{file.name}:{key}", load)))
    return found


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


def _no_pair(files: tuple[Path, ...], opener: Opener) -> str:
    """What the files do hold, where x and y were expected."""
    content = opener(files[0])
    if isinstance(content, Mapping):
        keys = ", ".join(content) or "nothing"
        return f"{files[0]}: holds {keys}, but needs an x (or images, data) and a y (or labels, target)."
    names = ", ".join(file.name for file in files)
    suffix = files[0].suffix
    return f"{files[0].parent}: holds {names}, but needs pairs such as train_x{suffix} and train_y{suffix}."


def _open_npz(path: Path, memory: str | None = None) -> Mapping[str, Load]:
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
            require_room(sum(member.file_size for member in archive.infolist()), memory, path)
    except BROKEN as error:
        raise unreadable(path, "an npz archive", error, "write it again with numpy.savez") from error
    return {key: partial(_member, path, key) for key in keys}


def _member(path: Path, key: str) -> Array:
    try:
        with np.load(path, allow_pickle=False) as archive:
            array: Array = archive[key]
    except BROKEN as error:
        _refuse_objects(error, path, f"array {key!r}")
        raise unreadable(path, f"an npz archive at array {key!r}", error, "write it again with numpy.savez") from error
    return array


def _open_npy(path: Path) -> Load:
    return partial(_mapped, path)


def _mapped(path: Path) -> Array:
    """The array left on disk until its rows are taken."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except BROKEN as error:
        _refuse_objects(error, path, "the array")
        raise unreadable(path, "an npy array", error, "write it again with numpy.save") from error
    return array


def _refuse_objects(error: BaseException, path: Path, what: str) -> None:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        raise DataError(
            f"{path}: {what} holds pickled Python objects, which are never opened; save it again as plain numbers."
        ) from error


def _open_safetensors(path: Path) -> Mapping[str, Load]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise unreadable(path, "safetensors", error, "write it again with safetensors.torch.save_file") from error
    return {key: partial(as_array, tensor) for key, tensor in tensors.items()}


def _open_pt(path: Path, memory: str | None = None) -> Load | Mapping[str, Load]:
    content = _load(path)
    if _is_tensor(content):
        return partial(_array_of, content, path, memory)
    if isinstance(content, (tuple, list)) and len(content) == 2:
        content = {"x": content[0], "y": content[1]}
    if not isinstance(content, Mapping):
        raise DataError(
            f"{path}: holds a {type(content).__name__}; save a dict of tensors x and y, or the pair (x, y)."
        )
    tensors = {str(key): tensor for key, tensor in content.items() if _is_tensor(tensor)}
    return {key: partial(_array_of, tensor, path, memory) for key, tensor in tensors.items()}


def _array_of(tensor: Tensor, path: Path, memory: str | None) -> Array:
    """The numbers of a tensor from a file, which may be small there and large once it is spread out."""
    require_room(math.prod(tensor.shape) * tensor.element_size(), memory, path)
    try:
        return as_array(tensor)
    except Exception as error:  # nested, without values, quantised, of a type that NumPy does not have
        raise unreadable(path, "tensors of plain numbers", error, "save dense float or integer tensors") from error


def _load(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path}: holds more than tensors (or is no torch file), and pickles are never opened; "
            "save a dict of tensors x and y with torch.save."
        ) from error
    except Exception as error:  # a damaged file can trip the unpickler's stack machine in any way
        raise unreadable(path, "a torch file", error, "write it again with torch.save") from error


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def as_array(tensor: Tensor) -> Array:
    """The numbers of a tensor of any layout, on any device."""
    import torch

    dense = (tensor.to_dense() if tensor.layout is not torch.strided else tensor).detach().cpu()
    array: Array = (dense.float() if dense.dtype is torch.bfloat16 else dense).numpy()
    return array
