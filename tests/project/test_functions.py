"""How many parameters functions have, at most six, and how large the tree is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from places import ROOT

MOST = 6
WRITTEN_BY_OTHERS = ("command", "operator")  # decorators: of a command's options, of an ONNX operator's attributes
OPERATORS = {  # whose parameters ONNX or PyTorch wrote, without such a decorator
    "audit/model/onnx/ops/window.py": {"convolve"},
    "audit/model/torch/formulas.py": {"attention", "fused_attention", "fused_encoder_layer"},
}
DOORS = {"audit_model", "make_twins"}  # of `import audit`: at most six by position, and options by keyword


class Function(NamedTuple):
    """A function of the package, as it is written down."""

    file: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def by_position(self) -> int:
        """Parameters before the star; `self` and `cls` are not counted."""
        names = [each.arg for each in (*self.node.args.posonlyargs, *self.node.args.args)]
        return len(names) - (names[:1] in (["self"], ["cls"]))

    @property
    def has_a_signature_of_others(self) -> bool:
        """Whether its parameters are a command's options, or an operator's."""
        decorators = [each.func if isinstance(each, ast.Call) else each for each in self.node.decorator_list]
        named = {each.id for each in decorators if isinstance(each, ast.Name)}
        return bool(named & set(WRITTEN_BY_OTHERS)) or self.node.name in OPERATORS.get(self.file, ())

    @property
    def too_many(self) -> bool:
        """Whether it breaks the rule."""
        door = self.file == "audit/api.py" and self.node.name in DOORS
        counted = self.by_position + (0 if door else len(self.node.args.kwonlyargs))
        return counted > MOST and not self.has_a_signature_of_others


def functions(text: str, file: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(file, node)


@cache
def everywhere() -> list[Function]:
    paths = sorted((ROOT / "audit").rglob("*.py"))
    texts = [(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()) for path in paths]
    return [found for text, file in texts for found in functions(text, file)]


def test_no_function_takes_more_than_six_parameters() -> None:
    found = everywhere()
    assert len(found) > 2000
    assert [f"{each.file}: {each.node.name}" for each in found if each.too_many] == []


def test_whoever_may_take_more_is_still_there_and_does() -> None:
    found = {(each.file, each.node.name): each for each in everywhere()}
    named = [(file, name) for file, names in OPERATORS.items() for name in names]
    for key in [*named, *(("audit/api.py", name) for name in DOORS)]:
        assert found[key].by_position + len(found[key].node.args.kwonlyargs) > MOST, key


@pytest.mark.parametrize(
    ("text", "too_many"),
    [
        ("def f(a, b, c, d, e, f): ...", False),
        ("def f(a, b, c, d, e, f, g): ...", True),
        ("def f(a, b, c, *, d, e, f, g): ...", True),
        ("class A:\n    def f(self, a, b, c, d, e, f): ...", False),
        ("class A:\n    def f(self, a, b, c, d, e, f, g): ...", True),
        ("@command()\ndef f(a, b, c, d, e, f, g): ...", False),
        ("@cache\ndef f(a, b, c, d, e, f, g): ...", True),
    ],
)
def test_the_rule(text: str, too_many: bool) -> None:
    assert any(each.too_many for each in functions(text, "audit/some.py")) == too_many


def test_the_tree_stays_within_its_limits() -> None:
    paths = list((ROOT / "audit").rglob("*.py"))
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert len(paths) <= 270
    assert {name: count for name, count in lines.items() if count > 300} == {}
    assert len([path for path in (ROOT / "audit").iterdir() if path.name != "__pycache__"]) <= 22
