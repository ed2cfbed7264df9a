"""Files of arrays that carry names: npz and npy, safetensors and pt.

A file either is one array, whose role its file name tells (`train_x.npy`), or holds several, whose names tell it
(`train.npz` with x and y; `mnist.npz` with x_train, y_train, x_test, y_test). Nothing is unpickled: a `.pt` file is
only opened with weights_only, so it cannot run code.
"""

from __future__ import annotations

import pickle
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from audit.data.source import (
    Array,
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
    unreadable,
    without_split,
)
from audit.errors import DataError
from audit.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

HEADER = (ValueError, SyntaxError, TypeError, tokenize.TokenError)  # what a damaged npy header is complained about with
BROKEN = (OSError, EOFError, KeyError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error, *HEADER)

NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
ZIP_HEADER, ZIP_NAME_LENGTH = 30, 26  # bytes before a member's name, and where among them its length stands
PIECE = 1 << 20

Load = Callable[[], Array]
Opener = Callable[[Path], "Load | Mapping[str, Load]"]


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
        *_find(folder, "npz", (".npz",), _open_npz),
        *_find(folder, "npy", (".npy",), _open_npy),
        *_find(folder, "safetensors", (".safetensors",), _open_safetensors),
        *_find(folder, "pt", (".pt", ".pth"), _open_pt),
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


def _open_npz(path: Path) -> Mapping[str, Load]:
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
    except BROKEN as error:
        raise unreadable(path, "an npz archive", error, "write it again with numpy.savez") from error
    return {key: partial(_member, path, key) for key in keys}


def _member(path: Path, key: str) -> Array:
    """An array of the archive, left on disk where it lies there as it is, as `numpy.savez` writes it."""
    try:
        mapped = _mapped_member(path, f"{key}.npy")
        if mapped is not None:
            return mapped
        with np.load(path, allow_pickle=False) as archive:
            array: Array = archive[key]
    except BROKEN as error:
        _refuse_objects(error, path, f"array {key!r}")
        raise unreadable(path, f"an npz archive at array {key!r}", error, "write it again with numpy.savez") from error
    return array


def _mapped_member(path: Path, name: str) -> Array | None:
    """The array mapped into memory; None where it is compressed, empty or of a kind that cannot be mapped."""
    with zipfile.ZipFile(path) as archive:
        if name not in archive.namelist() or archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
            return None
        with archive.open(name) as member:
            while member.read(PIECE):  # to the end, where the archive's checksum is held against what was read
                pass
        begin = archive.getinfo(name).header_offset
    with path.open("rb") as file:
        file.seek(begin + ZIP_NAME_LENGTH)
        lengths = np.frombuffer(file.read(4), "<u2")  # of the name and of what else stands before the array
        file.seek(begin + ZIP_HEADER + int(lengths.sum()))
        version = np.lib.format.read_magic(file)
        if version not in NPY_HEADERS:
            return None
        shape, by_columns, dtype = NPY_HEADERS[version](file)
        if dtype.hasobject or 0 in shape or not shape:
            return None
        order: Literal["C", "F"] = "F" if by_columns else "C"
        return np.memmap(path, dtype, "r", file.tell(), shape, order)


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


def _open_pt(path: Path) -> Load | Mapping[str, Load]:
    content = _load(path)
    if _is_tensor(content):
        return partial(as_array, content)
    if isinstance(content, (tuple, list)) and len(content) == 2:
        content = {"x": content[0], "y": content[1]}
    if not isinstance(content, Mapping):
        raise DataError(
            f"{path}: holds a {type(content).__name__}; save a dict of tensors x and y, or the pair (x, y)."
        )
    return {str(key): partial(as_array, tensor) for key, tensor in content.items() if _is_tensor(tensor)}


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
