"""`.pt2` files: programs saved by torch.export, opened without running anything that is hidden in them.

`torch.export.load` unpickles sample inputs and odd weights, evaluates shape expressions as Python, resolves any name
below `torch` as an operator and loads compiled libraries. Here every member is checked first, and torch is handed a new
archive in memory that holds the checked members only.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from audit.errors import ModelError
from audit.model import sha256
from audit.model.base import Model, check_weights, first_line, quiet
from audit.model.torch import allowed
from audit.model.torch.program import model_of
from audit.settings import Settings


def load(path: Path, settings: Settings) -> Model:
    """The program in canonical form. Nothing in it is unpickled unless the user trusts it."""
    program = _program(path, settings.trust_pickle)
    check_weights({**program.state_dict, **program.constants}, path)
    return model_of(program, path, "pt2", sha256(path), settings.output, reference_name="torch.export")


def _program(path: Path, trusted: bool) -> ExportedProgram:
    """The saved program; without trust, from an archive whose every member was checked."""
    archive = path.open("rb") if trusted else checked_archive(path)
    try:
        with archive, quiet():
            return torch.export.load(archive)
    except Exception as error:  # torch raises anything from KeyError to AssertionError on a damaged archive
        raise ModelError(
            f"{path}: is damaged, or was saved by a version of torch that {torch.__version__} cannot read "
            f"({first_line(error)}); export it again with torch.export.save."
        ) from error


# the archive

OPERATOR = re.compile(
    r"torch\.ops\.(?P<space>aten|prims)\.(?P<name>\w+)\.(?!__)\w+"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
    r"|torch\.(_sym_sqrt|sym_(int|float|max|min|not|sum|ite))"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|xor)"
    r"|math\.(ceil|floor|trunc|sqrt)"
)
UNPACKED = 20  # times its size that an archive may unpack to; torch itself does not compress
MEMBER = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|models/model\.json|data/(weights/model_weights|constants/model_constants)_config\.json"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+|data/(weights|constants|sample_inputs)/model\.pt"
    r"|serialized_(exported_program\.json|(state_dict|constants|example_inputs)\.pt)"
)
"""What an archive consists of. Nothing else reaches torch, whose reader ignores case and guesses at suffixes."""


class Unsafe(Exception):
    """What in the archive could run code."""


def checked_archive(path: Path) -> io.BytesIO:
    """The archive with its checked members only; a ModelError if one of them could run code."""
    clean = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(clean, "w") as target:
            _refuse_bomb(path, source)
            for name in dict.fromkeys(source.namelist()):
                _refuse_library(name)
                if MEMBER.fullmatch(name) or MEMBER.fullmatch(name.partition("/")[2]):
                    content = source.read(name)
                    _check(name, content)
                    target.writestr(name, content)
    except ModelError:
        raise
    except Unsafe as danger:
        raise ModelError(
            f"{path}: holds {danger}, which can run code when it is opened; export it again with torch.export.save and "
            "plain tensors only, or pass --trust-pickle if you trust its origin."
        ) from danger
    except Exception as error:  # of the archive, of what unpacks it, of the documents in it
        raise ModelError(f"{path}: is truncated or corrupt ({first_line(error)}); export or copy it again.") from error
    clean.seek(0)
    return clean


def _refuse_bomb(path: Path, archive: zipfile.ZipFile) -> None:
    """Sizes stand in the archive's directory, and nothing beyond them is unpacked."""
    held, unpacked = path.stat().st_size, sum(member.file_size for member in archive.infolist())
    if unpacked > UNPACKED * held + 2**24:
        raise ModelError(
            f"{path}: unpacks to {unpacked >> 20} MB from {held >> 20} MB, which no network does; export it again."
        )


def _refuse_library(name: str) -> None:
    if "aotinductor" in name.lower():
        raise Unsafe("a compiled library (AOTInductor)")


def _check(name: str, content: bytes) -> None:
    if name.endswith(".json"):
        for node in _objects(json.loads(content)):
            _check_object(node)
    elif name.endswith(".pt"):
        _check_pickle(name, content)


def _check_pickle(name: str, content: bytes) -> None:
    if not content:
        return
    try:
        with quiet():
            torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever is wrong with it, torch.export.load would fall back to plain unpickling
        raise Unsafe(f"pickled Python objects ({name})") from error


def _check_object(node: dict[str, Any]) -> None:
    """One JSON object of the archive: an operator call, a shape expression, a weight, a pytree node."""
    for target in [node.get("target", "_operator.add")] * ("outputs" in node) + [node.get("as_operator", "math.ceil")]:
        if not _is_operator(str(target)):
            raise Unsafe(f"a call of {str(target)[:80]}")
    if "expr_str" in node and not is_arithmetic(str(node["expr_str"])):
        raise Unsafe(f"a shape that is not plain arithmetic ({str(node['expr_str'])[:40]!r})")
    if node.get("use_pickle"):
        raise Unsafe(f"a pickled weight ({node.get('path_name')})")
    if "path_name" in node and not str(node["path_name"]).startswith(("weight_", "tensor_")):
        raise Unsafe(f"a pickled object ({node['path_name']})")
    if "__enum__" in node or "default_factory_module" in node:
        raise Unsafe("the name of a Python module to import")


def _is_operator(target: str) -> bool:
    found = OPERATOR.fullmatch(target)
    return found is not None and (found["space"] is None or allowed(f"{found['space']}::{found['name']}"))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object in `value`, also in strings that torch could read as JSON, whatever they begin with."""
    if isinstance(value, str) and ("{" in value or "[" in value):
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(child)


# Sizes as a `.pt2` writes them: expressions that torch hands to sympy, which evaluates them as Python.
#
# Here they are parsed first. What passes is arithmetic of bounded length on numbers and symbols, so that evaluating it
# runs nothing else and ends soon.


LONGEST = 4000  # characters
LARGEST = 2**64
POWERS = 3  # in one expression, each with a written exponent of at most EXPONENT
EXPONENT = 8
COMPARED = 32  # arguments of Max and Min in one expression: sympy compares each with every other

SYMBOL = re.compile(r"[a-z]{1,4}\d{1,6}")
ASSUMPTIONS = {"positive", "nonnegative", "integer", "real", "evaluate"}
NUMBERS = {"Integer", "Float", "Rational"}
POWER = {"Pow", "PowByNatural"}
EXTREMES = {"Max", "Min"}
FUNCTIONS = {
    *("Symbol", "Add", "Mul", "Abs", "Max", "Min", "Mod", "PythonMod", "FloorDiv", "CeilDiv", "CleanDiv"),
    *("ModularIndexing", "Where", "IntTrueDiv", "FloatTrueDiv", "ToFloat", "TruncToInt", "CeilToInt", "FloorToInt"),
    *("RoundToInt", "Identity", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Equality", "Unequality"),
    *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", *NUMBERS, *POWER),
}
PLAIN = (
    *(ast.Expression, ast.Load, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop),
    *(ast.boolop, ast.cmpop),
)


def is_arithmetic(text: str) -> bool:
    """Whether `text` is plain arithmetic on symbols such as s31, as sympy prints it.

    >>> is_arithmetic("Mul(Integer(2), Symbol('s31', positive=True))"), is_arithmetic("2*s0**2 + 1")
    (True, True)
    >>> is_arithmetic("9**9**9"), is_arithmetic("open('x')"), is_arithmetic("s0.__class__")
    (False, False, False)
    """
    if len(text) > LONGEST:
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    few = sum(map(_is_power, nodes)) <= POWERS and sum(map(_compared, nodes)) <= COMPARED
    return few and all(map(_is_plain, nodes))


def _compared(node: ast.AST) -> int:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in EXTREMES:
        return 0
    return len(node.args)


def _is_power(node: ast.AST) -> bool:
    return isinstance(node, ast.Pow) or (isinstance(node, ast.Name) and node.id in POWER)


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return _is_number(node.value) or (isinstance(node.value, str) and SYMBOL.fullmatch(node.value) is not None)
    if isinstance(node, ast.Name):
        return node.id in FUNCTIONS or node.id in ("true", "false") or SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.keyword):
        return node.arg in ASSUMPTIONS and isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        return known and (not _is_power(node.func) or (len(node.args) == 2 and _is_exponent(node.args[1])))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift, ast.MatMult)):
        return isinstance(node.op, ast.Pow) and _is_exponent(node.right)
    return isinstance(node, PLAIN)


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float)) and abs(value) <= LARGEST


def _is_exponent(node: ast.expr) -> bool:
    """A small number as it stands, as `-1` or as `Integer(2)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NUMBERS and node.args:
        return all(_is_exponent(argument) for argument in node.args)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_exponent(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value <= EXPONENT
