"""The code of a TorchScript archive, checked before torch reads any of it.

While torch.jit.load reads an archive it already runs some of its code: constants of a class and default arguments are
expressions, `__setstate__` is called. So the code is parsed here, refused where any of that is more than a value, and
written anew, and torch is handed an archive in memory that holds nothing but what was checked.
"""

from __future__ import annotations

import ast
import io
import pickletools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from audit.errors import ModelError
from audit.model.torch.script_tensors import check_tensors

MEMBER = re.compile(r"code/[\w/.]+\.py|(data|constants)(\.pkl|/\d+)|version|byteorder|\.data/version")
"""What an archive consists of, beside notes on where the source once stood."""
DATA = re.compile(r"(data|constants)/\d+")
LIBRARY = "torch.classes"  # objects that compiled code builds
VALUE = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.USub, ast.Load, ast.Name, ast.Attribute)
MAKERS = ("float", "int", "annotate", "inf", "nan", "torch.device")
HOOKS = ("__setstate__", "__getstate__", "__del__")
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
