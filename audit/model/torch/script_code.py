"""The code of a TorchScript archive, checked before torch reads any of it.

While torch.jit.load reads an archive it already runs some of its code: constants of a class and default arguments are
expressions, `__setstate__` is called. So the code is parsed here, refused where any of that is more than a value, and
written anew, and torch is handed an archive in memory that holds nothing but what was checked.
"""

from __future__ import annotations

import ast
import io
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from audit.errors import ModelError

MEMBER = re.compile(r"code/[\w/.]+\.py|(data|constants)(\.pkl|/\d+)|version|byteorder|\.data/version")
"""What an archive consists of, beside notes on where the source once stood."""
DATA = re.compile(r"(data|constants)/\d+")
LIBRARY = "torch.classes"  # objects that compiled code builds
VALUE = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.USub, ast.Load, ast.Name, ast.Attribute)
MAKERS = ("float", "int", "annotate", "inf", "nan", "torch.device")
HOOKS = ("__setstate__", "__getstate__", "__del__")
MOST_STATEMENTS = 40_000  # of one member of code; torch takes minutes for more
LARGEST_CODE = 2**25  # bytes of one member of code or of a pickle


class Unsafe(Exception):
    """What in the archive would run while it is loaded."""


def checked_archive(path: Path) -> io.BytesIO:
    """The archive with its checked members only, read with the reader that torch.jit.load uses."""
    reader = torch._C.PyTorchFileReader(str(path))
    clean = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(clean)
    try:
        sizes = {name: len(reader.get_record(name)) for name in reader.get_all_records() if DATA.fullmatch(name)}
        for name in reader.get_all_records():
            if MEMBER.fullmatch(name):
                content = _checked(name, reader.get_record(name), sizes)
                writer.write_record(name, content, len(content))
    except Unsafe as danger:
        raise ModelError(
            f"{path}: {danger}, which runs code while it is loaded; audit the source model, or export it to ONNX or "
            ".pt2."
        ) from danger
    finally:
        writer.write_end_of_file()
    clean.seek(0)
    return clean


def _checked(name: str, content: bytes, sizes: Mapping[str, int]) -> bytes:
    """The member as torch may see it: code in one normal form, pickles as they are; `sizes` in bytes of the tensors."""
    if name.endswith((".py", ".pkl")) and len(content) > LARGEST_CODE:
        raise ValueError(f"{name} is too large to be a network's")
    if name.endswith(".pkl"):
        _check_pickle(content)
        check_tensors(content, lambda key: sizes.get(f"{name.removesuffix('.pkl')}/{key}", 0))
    if not name.endswith(".py"):
        return content
    tree = ast.parse(content.decode("utf-8"))
    if sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) > MOST_STATEMENTS:
        raise ValueError(f"{name} has more than {MOST_STATEMENTS:,} statements")
    for statement in tree.body:
        _check_statement(statement)
    return ast.unparse(tree).encode() + b"\n"


def _check_pickle(content: bytes) -> None:
    """Names of classes come in two parts, or as words that were pushed before."""
    words = [str(argument) for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)]
    if any(LIBRARY in word.replace(" ", ".").replace("\n", ".") for word in words):
        raise Unsafe("it holds an object of a compiled library")


def _check_statement(statement: ast.stmt) -> None:
    """A class or function; a constant beside them is a plain value."""
    if isinstance(statement, ast.ClassDef):
        for inner in statement.body:
            _check_statement(inner)
    elif isinstance(statement, ast.FunctionDef):
        if statement.name in HOOKS:
            raise Unsafe(f"it defines {statement.name}")
        defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        for default in (*defaults, *statement.decorator_list):
            _check_value(default)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        if statement.value is not None:
            _check_value(statement.value)
    elif not isinstance(statement, (ast.Pass, ast.Expr)) or not _is_docstring(statement):
        raise Unsafe("it has a statement outside its functions")


def _is_docstring(statement: Any) -> bool:
    return isinstance(statement, ast.Pass) or isinstance(statement.value, ast.Constant)


def _check_value(value: ast.expr) -> None:
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS and not node.keywords:
            continue
        if not isinstance(node, VALUE):
            raise Unsafe(f"it sets a constant to {ast.unparse(value)[:60]!r}")


# The pickles of a TorchScript archive, read beforehand by a reader that makes nothing of them.
#
# torch believes what they say of its tensors: where the numbers end, it reads on in whatever memory follows, and what
# lay there would be audited as weights. So every storage is held against the bytes that the archive has for it, and
# every tensor against its storage.


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
