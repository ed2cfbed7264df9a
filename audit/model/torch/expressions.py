"""Sizes as a `.pt2` writes them: expressions that torch hands to sympy, which evaluates them as Python.

Here they are parsed first. What passes is arithmetic of bounded length on numbers and symbols, so that evaluating it
runs nothing else and ends soon.
"""

from __future__ import annotations

import ast
import re

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
