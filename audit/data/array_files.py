"""Opens files of arrays: npz and npy, left on disk where they can be, safetensors and pt.

Nothing is unpickled: a `.pt` file is only opened with weights_only, so it cannot run code.
"""

from __future__ import annotations

import lzma
import math
import pickle
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from audit.data.dataset import Array, unreadable
from audit.errors import DataError
from audit.settings.limits import require_room

if TYPE_CHECKING:
    from torch import Tensor

HEADER = (ValueError, SyntaxError, TypeError, tokenize.TokenError)  # what a damaged npy header is complained about with
BROKEN = (
    *(OSError, EOFError, KeyError, MemoryError, NotImplementedError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, *HEADER),
)

NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
ZIP_HEADER, ZIP_NAME_LENGTH = 30, 26  # bytes before a member's name, and where among them its length stands
PIECE = 1 << 20

Load = Callable[[], Array]
Opener = Callable[[Path], "Load | Mapping[str, Load]"]


def open_npz(path: Path, memory: str | None = None) -> Mapping[str, Load]:
    """Its arrays by name; those that are stored as they are take no more room than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
            packed = [member for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
            require_room(sum(member.file_size for member in packed), memory, path)
    except BROKEN as error:
        raise unreadable(path, "an npz archive", error, "write it again with numpy.savez") from error
    if len(set(keys)) < len(keys):
        raise DataError(f"{path}: holds two arrays of one name; write it again with numpy.savez.")
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


def open_npy(path: Path) -> Load:
    """Its one array."""
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


def open_safetensors(path: Path) -> Mapping[str, Load]:
    """Its tensors by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise unreadable(path, "safetensors", error, "write it again with safetensors.torch.save_file") from error
    return {key: partial(as_array, tensor) for key, tensor in tensors.items()}


def open_pt(path: Path, memory: str | None = None) -> Load | Mapping[str, Load]:
    """Its tensor, or its tensors by name; a pair is x and y."""
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
        with warnings.catch_warnings():  # of how its pickle was written
            warnings.simplefilter("ignore")
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
