"""ExportedProgram → the canonical network: a graph whose layers with weights are modules that a user recognises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from audit.errors import ModelError
from audit.model.torch.dense import dense_layers, keep_sample_axis
from audit.model.torch.formulas import DECOMPOSITIONS, follow_weights, tidy
from audit.model.torch.graph import Constants, Node, WorkingGraph
from audit.model.torch.outputs import choose_output, named_outputs, take_off_head
from audit.model.torch.submodules import recurrent_modules, weight_modules


@dataclass(frozen=True)
class Canonical:
    """The network and what was found on the way."""

    network: fx.GraphModule
    ops: dict[str, str]
    names: dict[str, str]
    output: str
    head: str
    per_position: int | None = None  # C of an output [n, T, C]


def canonical(program: ExportedProgram, path: Path, wish: str | None = None) -> Canonical:
    """`program` in canonical form, computing the output called `wish` (None: the only one that looks like scores)."""
    work = _working_graph(_functional(program), path)
    tidy(work, path)
    constants = Constants(work)
    dense_layers(work, constants)
    keep_sample_axis(work)
    weight_modules(work, constants)
    recurrent_modules(work, constants)
    values = {name: node.meta["val"] for name, node in work.outputs.items()}
    output = choose_output(values, wish, path)
    head, per_position = take_off_head(work, constants, output, path)
    follow_weights(work, _working_type(work))
    network = work.finish(work.outputs[output])
    return Canonical(network, work.ops, work.names, output, head, per_position)


def _functional(program: ExportedProgram) -> ExportedProgram:
    """Without in-place operators and fused layers. Rewriting takes seconds, so it is done only where there are some."""
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    blocks = any(isinstance(target, torch._ops.HigherOrderOperator) for target in calls)
    writes = any(isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable for target in calls)
    fused = any(target in DECOMPOSITIONS for target in calls)
    return program.run_decompositions(DECOMPOSITIONS) if blocks or writes or fused else program


def _working_graph(program: ExportedProgram, path: Path) -> WorkingGraph:
    """The program's graph with its weights as get_attr nodes and without an output node."""
    work = WorkingGraph(fx.Graph(), _tensors(program))
    copies: dict[Node, Any] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            copies[node] = _input(work, node, specs[node.name])
        elif node.op != "output":
            copies[node] = _copied(work, node, copies, program.graph_module)
    if not any(node.op == "placeholder" for node in work.graph.nodes):
        raise ModelError(f"{path}: takes no tensor, so there is nothing to audit; export a model with an input.")
    work.outputs = dict(_outputs(program, copies))
    return work


def _input(work: WorkingGraph, node: Node, spec: Any) -> Any:
    if spec.kind is InputKind.USER_INPUT:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        return work.graph.node_copy(node)
    copy = work.graph.get_attr(spec.target)
    copy.meta = dict(node.meta)
    return copy


def _copied(work: WorkingGraph, node: Node, copies: dict[Node, Any], owner: fx.GraphModule) -> Any:
    """`node` in the working graph; a block under no_grad or autocast is written out in place of its call."""
    block = _block(node, owner)
    if block is None:
        return None if node.op == "get_attr" else work.graph.node_copy(node, lambda source: copies[source])
    body, operands = block
    inner: dict[Node, Any] = dict(zip(_placeholders(body), (copies.get(each, each) for each in operands), strict=True))
    for each in body.graph.nodes:
        if each.op not in ("placeholder", "output"):
            inner[each] = _copied(work, each, inner, body)
    return fx.node.map_arg(next(iter(reversed(body.graph.nodes))).args[0], lambda each: inner[each])


def _block(node: Node, owner: fx.GraphModule) -> tuple[fx.GraphModule, list[Any]] | None:
    """The body and operands of a higher-order call that only sets a mode."""
    mode = str(node.target) in ("wrap_with_set_grad_enabled", "wrap_with_autocast")
    if node.op != "call_function" or not mode:
        return None
    bodies = [i for i, argument in enumerate(node.args) if isinstance(argument, Node) and argument.op == "get_attr"]
    position = bodies[0]
    body = owner.get_submodule(str(node.args[position].target))  # type: ignore[union-attr]
    assert isinstance(body, fx.GraphModule)
    return body, list(node.args[position + 1 :])


def _placeholders(body: fx.GraphModule) -> list[Node]:
    return [node for node in body.graph.nodes if node.op == "placeholder"]


def _outputs(program: ExportedProgram, copies: dict[Node, Any]) -> Iterator[tuple[str, Node]]:
    """Names and nodes of the tensors the program returns."""
    returned = next(iter(reversed(program.graph.nodes))).args[0]
    specs = program.graph_signature.output_specs
    leaves = [node for node, spec in zip(returned, specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT]
    tree = pytree.tree_unflatten(list(range(len(leaves))), program.call_spec.out_spec)
    for name, position in named_outputs(tree).items():
        if isinstance(leaves[position], Node) and isinstance(copies[leaves[position]], Node):
            yield name, copies[leaves[position]]


def _tensors(program: ExportedProgram) -> dict[str, Tensor]:
    """Weights by name, at least float32, all of one float type; tied weights are one tensor again."""
    wide = any(tensor.dtype == torch.float64 for tensor in program.state_dict.values())
    kind = torch.float64 if wide else torch.float32
    seen: dict[object, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT or spec.target is None:
            continue
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if not isinstance(tensor, Tensor):
            continue
        layout = (tensor.dtype, tuple(tensor.shape), tensor.stride())
        key = (tensor.data_ptr() if tensor.numel() else spec.target, layout, spec.kind)
        if key not in seen:
            seen[key] = _widened(tensor, kind, spec.kind is InputKind.PARAMETER)
        tensors[spec.target] = seen[key]
    return tensors


def _widened(tensor: Tensor, kind: torch.dtype, is_parameter: bool) -> Tensor:
    value = tensor.detach().to(kind) if tensor.is_floating_point() else tensor.detach()
    return nn.Parameter(value, requires_grad=False) if is_parameter else value


def _working_type(work: WorkingGraph) -> torch.dtype:
    floats = (tensor.dtype for tensor in work.tensors.values() if tensor.is_floating_point())
    return next(floats, torch.float32)
