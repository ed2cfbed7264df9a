"""TorchScript archives: torch interprets them without unpickling Python objects.

Their own language can write files, so their code is checked before it is loaded and their graphs before they run.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.jit._recursive import wrap_cpp_module

from audit.errors import ModelError
from audit.model import sha256
from audit.model.base import Model, check_weights, first_line, quiet
from audit.model.packing import inputs_of
from audit.model.torch import allowed
from audit.model.torch.graph import aten, place_tensor
from audit.model.torch.script_code import LIBRARY, checked_archive
from audit.settings import Settings


def load(path: Path, settings: Settings) -> Model:
    """The script module as it is. What shape it takes, `canonical_form` finds out with data."""
    network = _loaded(path)
    check_weights({**network.state_dict(), **_embedded(network)}, path)
    inputs = inputs_of(network)
    return Model(
        network=network,
        path=path,
        format="torchscript",
        sha256=sha256(path),
        input=inputs[0],
        others=inputs[1:],
        output=settings.output or "",
    )


def converted(network: torch.jit.ScriptModule, example: Tensor) -> ExportedProgram:
    """The script as an exported program, by torch's own converter."""
    from torch._export.converter import TS2EPConverter

    program = TS2EPConverter(network, (example,)).convert()
    trained = {name for name, _ in network.named_parameters()}
    for spec in program.graph_signature.input_specs:  # to the converter every tensor is a buffer
        if spec.kind is InputKind.BUFFER and spec.target in trained:
            spec.kind = InputKind.PARAMETER
            program.state_dict[spec.target] = nn.Parameter(program.state_dict[spec.target], requires_grad=False)
    return program


def _loaded(path: Path) -> Any:
    """As torch.jit.load, but for what it would run meanwhile; none of the script's methods has run yet."""
    try:
        with quiet():
            unit, archive = torch._C.CompilationUnit(), checked_archive(path)
            read: Any = torch._C.import_ir_module_from_buffer
            parts = read(unit, archive.getvalue(), torch.device("cpu"), {}, False)
            check_graphs(unit, _modules(parts))
            return wrap_cpp_module(parts).eval()  # type: ignore[no-untyped-call]
    except ModelError:
        raise
    except Refused as reason:
        raise ModelError(f"{path}: its code {reason}; audit the source model instead.") from reason
    except Exception as error:
        raise _broken(path, error) from error


def _modules(parts: Any) -> list[Any]:
    """A script and every module in it."""
    found = [parts]
    for module in found:
        found.extend(child for _, child in torch._C.ModuleDict(module).items())
    return found


def _broken(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path}: is truncated or corrupt TorchScript ({first_line(error)}); save or copy it again.")


def _embedded(network: torch.jit.ScriptModule) -> dict[str, Tensor]:
    """Weights that torch.jit.freeze wrote into the graph as constants."""
    graph: Any = network.inlined_graph  # must outlive its nodes
    return {
        node.output().debugName(): node.t("value")
        for node in graph.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    }


# Scripts with branches. torch's converter reads scripts without control flow only. One that asks `if x.dim() == 3` or
# loops over layers still runs one list of operators per input shape: it is recorded for two batch sizes, and the sizes
# that grow with the batch are written as multiples of it.

BATCHES = (2, 3)  # batch sizes recorded
NOTE = "The TorchScript was recorded as it ran: a branch that depends on the data is taken as for the first samples."


def recorded(network: torch.jit.ScriptModule, example: Tensor) -> ExportedProgram:
    """The operators that `network` runs on `example` [n ≥ 3, ...] as a program for any batch size."""
    few, more = (_record(network, example[:size]) for size in BATCHES)
    _free_the_batch(few.graph, more.graph)
    few.recompile()
    return torch.export.export(few, (example[: BATCHES[0]],), dynamic_shapes=({0: Dim.AUTO},), strict=False)


def _record(network: torch.jit.ScriptModule, x: Tensor) -> fx.GraphModule:
    """One list of operators, its weights under the names they have in the script."""
    root, names = nn.Module(), {tensor.data_ptr(): name for name, tensor in network.state_dict().items()}
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        seen = make_fx(lambda x: network(x), pre_dispatch=True, _allow_non_fake_inputs=True)(x)
    seen.graph.eliminate_dead_code()  # sizes asked for: their answers are in the recording already
    for node in seen.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(seen, node.target)
            node.target = place_tensor(root, names.get(tensor.data_ptr(), node.target), tensor)
    return fx.GraphModule(root, seen.graph)


def _free_the_batch(few: fx.Graph, more: fx.Graph) -> None:
    """Writes every number that differs between the recordings as p·n + q of the batch size n."""
    x = next(node for node in few.nodes if node.op == "placeholder")
    with few.inserting_after(x):
        n = few.call_function(aten.sym_size.int, (x, 0))
    for node, twin in zip([node for node in few.nodes if node is not n], more.nodes, strict=True):
        if (node.op, str(node.target)) != (twin.op, str(twin.target)):
            raise ValueError("it runs other operators for another batch size")
        with few.inserting_before(node):
            node.args, node.kwargs = (_merged(a, b, n) for a, b in ((node.args, twin.args), (node.kwargs, twin.kwargs)))


def _merged(a: Any, b: Any, n: fx.Node) -> Any:
    if isinstance(a, (list, tuple)):
        return type(a)(_merged(one, other, n) for one, other in zip(a, b, strict=True))
    if isinstance(a, dict):
        return {key: _merged(value, b[key], n) for key, value in a.items()}
    if isinstance(a, fx.Node) or a == b:
        return a
    if not isinstance(a, int):
        raise ValueError("it runs with other constants for another batch size")
    slope = (b - a) // (BATCHES[1] - BATCHES[0])
    scaled = n.graph.call_function(operator.mul, (n, slope))
    return n.graph.call_function(operator.add, (scaled, a - BATCHES[0] * slope))


# The graphs of a loaded TorchScript before any of them runs: which operators they call, how many steps they take.


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
