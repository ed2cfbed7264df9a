"""The graphs of a loaded TorchScript before any of them runs: which operators they call, how many steps they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from audit.model.torch.operators import allowed
from audit.model.torch.script_code import LIBRARY

MOST_STEPS = 10**7
"""Calls of operators for one batch; BERT makes a few thousand."""
SIZE = 4096  # a length that only data decide, such as the samples of a batch
SIZES = ("aten::size", "aten::len", "aten::dim", "aten::numel")
SUMS = ("aten::add", "aten::sub", "aten::__range_length", "prim::max", "aten::neg", "prim::abs")
SMALLER = ("aten::floordiv", "aten::remainder", "prim::min")
CALLS = ("prim::CallMethod", "prim::CallFunction")

Graph = Any  # torch._C.Graph; torch has no types for it
Node = Any
Value = Any


class Refused(Exception):
    """What a script does that a network has no need of."""


def check_graphs(unit: Any, modules: list[Any]) -> None:
    """Refuses scripts whose functions (all of them, whether called or not) do what a network does not."""
    graphs: dict[str, Graph] = {}
    while new := [one for one in unit.get_functions() if one.qualified_name not in graphs]:
        graphs.update({one.qualified_name: one.graph for one in new})  # compiles it, which may bring in others
    for graph in graphs.values():
        for node in _nodes(graph):
            _check_node(node)
    Steps(graphs, modules).check()


def _nodes(block: Any) -> Iterator[Node]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _check_node(node: Node) -> None:
    if not allowed(node.kind()):
        raise Refused(f"calls {node.kind()}, which a network has no need of")
    values = [*node.inputs(), *node.outputs()]
    if any(LIBRARY in str(value.type()) for value in values if node.kind() in ("prim::CreateObject", *CALLS)):
        raise Refused("calls an object of a compiled library")


def _is_whole_number(node: Node) -> bool:
    return bool(node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "i")


class Steps:
    """How many operators the longest function calls, its loops and the functions that it calls included."""

    def __init__(self, graphs: dict[str, Graph], modules: list[Any]) -> None:
        self._graphs = graphs
        self._modules = modules
        self._types = {module._type().qualified_name() for module in modules}
        literals = [node.i("value") for graph in graphs.values() for node in _nodes(graph) if _is_whole_number(node)]
        self._largest = max((abs(each) for each in literals if each < 2**62), default=0)  # beyond stands for no end
        self._known: dict[str, int] = {}

    def check(self) -> None:
        """Refuses what would take too many steps, or how many cannot be said."""
        for name in self._graphs:
            if self._of(name) > MOST_STEPS:
                raise Refused(f"takes more than {MOST_STEPS:,} steps for one batch")

    def _of(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = MOST_STEPS + 1  # of a function that calls itself
            graph = self._graphs[name]
            self._known[name] = self._inside(graph, {value.debugName() for value in graph.inputs()})
        return self._known[name]

    def _inside(self, block: Any, arguments: set[str]) -> int:
        steps = 0
        for node in block.nodes():
            inner = sum(self._inside(each, arguments) for each in node.blocks())
            times = self._times(node, arguments) if node.kind() == "prim::Loop" else 1
            steps += 1 + times * inner + (self._called(node) if node.kind() in CALLS else 0)
        return min(steps, 2**62)

    def _called(self, node: Node) -> int:
        target = str(next(node.inputs()).type())
        if node.kind() == "prim::CallMethod":
            target = f"{target}.{node.s('name')}"
        if target in self._graphs:
            return self._of(target)
        suffix = f".{target.rpartition('.')[2]}"  # a method of an interface: whichever fits
        return max((self._of(name) for name in self._graphs if name.endswith(suffix)), default=0)

    def _times(self, loop: Node, arguments: set[str]) -> int:
        count, goes_on = list(loop.inputs())[:2]
        again = next(next(iter(loop.blocks())).outputs())
        times = self._bound(count, arguments)
        if times is None or not (_is_true(goes_on) and _is_true(again)):
            raise Refused("has a loop whose end cannot be foreseen")
        return times

    def _bound(self, value: Value, arguments: set[str]) -> int | None:
        """The largest size that a whole number can have; None where only running it would tell."""
        node = value.node()
        kind = node.kind()
        if _is_whole_number(node):
            return abs(int(node.i("value")))
        if kind in SIZES:
            return SIZE
        if value.debugName() in arguments:
            return self._largest
        if kind == "prim::GetAttr":
            return self._attribute(node)
        if kind not in (*SUMS, *SMALLER, "aten::mul"):
            return None
        bounds = [self._bound(each, arguments) for each in node.inputs()]
        if any(each is None for each in bounds):
            return None
        known = [each for each in bounds if each is not None]
        if kind in SMALLER:
            return max(known)
        return known[0] * known[1] if kind == "aten::mul" else sum(known)

    def _attribute(self, node: Node) -> int | None:
        """The largest value that an attribute has in any module; None in objects, which cannot be looked into."""
        if str(next(node.inputs()).type()) not in self._types:
            return None
        name = node.s("name")
        found = [module.getattr(name) for module in self._modules if module.hasattr(name)]
        return max((abs(each) for each in found if isinstance(each, int)), default=None)


def _is_true(value: Value) -> bool:
    return _is_whole_number(value.node()) and bool(value.node().i("value"))
