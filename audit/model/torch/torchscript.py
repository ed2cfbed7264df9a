"""TorchScript archives: torch interprets them without unpickling Python objects.

Their own language can write files, so their code is checked before it is loaded and their graphs before they run.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.jit._recursive import wrap_cpp_module

from audit.errors import ModelError
from audit.model.base import Model
from audit.model.detect import sha256
from audit.model.foreign import check_weights, first_line, quiet
from audit.model.packing import inputs_of
from audit.model.torch.graph import aten, place_tensor
from audit.model.torch.script_code import checked_archive
from audit.model.torch.script_graphs import Refused, check_graphs
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

SIZES = (2, 3)  # batch sizes recorded
NOTE = "The TorchScript was recorded as it ran: a branch that depends on the data is taken as for the first samples."


def recorded(network: torch.jit.ScriptModule, example: Tensor) -> ExportedProgram:
    """The operators that `network` runs on `example` [n ≥ 3, ...] as a program for any batch size."""
    few, more = (_record(network, example[:size]) for size in SIZES)
    _free_the_batch(few.graph, more.graph)
    few.recompile()
    return torch.export.export(few, (example[: SIZES[0]],), dynamic_shapes=({0: Dim.AUTO},), strict=False)


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
    slope = (b - a) // (SIZES[1] - SIZES[0])
    scaled = n.graph.call_function(operator.mul, (n, slope))
    return n.graph.call_function(operator.add, (scaled, a - SIZES[0] * slope))
