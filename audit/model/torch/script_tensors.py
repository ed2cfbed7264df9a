"""The pickles of a TorchScript archive, read beforehand by a reader that makes nothing of them.

torch believes what they say of its tensors: where the numbers end, it reads on in whatever memory follows, and what
lay there would be audited as weights. So every storage is held against the bytes that the archive has for it, and
every tensor against its storage.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Sequence
from typing import Any

import torch

WRITTEN = (
    *("PROTO", "MARK", "STOP", "GLOBAL", "NEWOBJ", "REDUCE", "BUILD", "BINPERSID"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
)
"""What torch.jit.save writes; all readers of pickles take these in the same way."""
SPANS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_qtensor")
BUILT = ("restore_type_tag", "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")
MOST = 2**50  # numbers of one tensor, or bytes of one storage


class Misfit(ValueError):
    """A tensor that is larger than what there is of it."""


class Anything:
    """What stands for every object but tensors; it takes any state and does nothing with it."""

    def __new__(cls, *_: object) -> Anything:
        """Of whatever arguments."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        """Forgets it."""


def check_tensors(content: bytes, size_of: Callable[[str], int]) -> None:
    """Refuses a pickle with a tensor beyond its storage; `size_of` says how many bytes there are under a key."""
    for written, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in WRITTEN:
            raise ValueError(f"it is pickled with {opcode.name}, which torch.jit.save does not write")
        if opcode.name.endswith("PUT") and argument is not None and argument > written:
            raise ValueError("its pickle remembers more than it holds")
    _Reader(content, size_of).load()


class _Reader(pickle.Unpickler):
    """Makes tensors into the check of their sizes, lists and dictionaries into themselves, all else into nothing."""

    def __init__(self, content: bytes, size_of: Callable[[str], int]) -> None:
        super().__init__(io.BytesIO(content))
        self._size_of = size_of

    def find_class(self, module: str, name: str) -> Any:
        """Nothing that is looked up is ever imported."""
        if module == "torch" and name.endswith("Storage"):
            return name
        if module == "torch._utils" and name in SPANS:
            return _check_span
        if module == "torch.jit._pickle" and name in BUILT:
            return _first
        if module.startswith("torch._") or module == "torch.jit._pickle":
            raise ValueError(f"it is pickled with {module}.{name}, which torch.jit.save does not write")
        return Anything

    def persistent_load(self, pid: Any) -> int:
        """How many numbers a storage has, once the archive has as many."""
        _, kind, key, _, count = pid
        width = _width(kind)
        if not 0 <= count <= MOST or (count and self._size_of(str(key)) < count * width):
            raise Misfit(f"the archive does not hold the {count} numbers of tensor {key}")
        return int(count)


def _width(storage: str) -> int:
    """Bytes of a number in a storage of this name."""
    if storage == "UntypedStorage":
        return 1
    kind = getattr(torch, storage, None)
    dtype = getattr(kind, "dtype", None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"there is no {storage}")
    return dtype.itemsize


def _check_span(count: int, offset: int, sizes: Sequence[int], strides: Sequence[int], *_: object) -> Anything:
    """The last number of a tensor lies within its storage of `count` numbers, the first one as well."""
    if len(sizes) != len(strides) or min((offset, *sizes, *strides)) < 0 or max((offset, *sizes, *strides)) > MOST:
        raise Misfit("a tensor has an impossible shape")
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= count:
        raise Misfit(f"a tensor of shape {list(sizes)} lies beyond the {count} numbers of its storage")
    return Anything()


def _first(value: object, *_: object) -> object:
    return value
