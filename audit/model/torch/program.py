"""An exported program as a `Model`: its network in canonical form, its scores, and the program as the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_leaves

from audit.errors import ModelError
from audit.model.base import InputSpec, Model, float_type, quiet, reference_of, trial_batches
from audit.model.canon import TRIALS, guard, head_note
from audit.model.torch import bounded
from audit.model.torch.dense import dense_layers, keep_sample_axis
from audit.model.torch.formulas import DECOMPOSITIONS, follow_weights, tidy
from audit.model.torch.graph import Constants, Node, WorkingGraph
from audit.model.torch.outputs import choose_output, named_outputs, take_off_head
from audit.model.torch.submodules import recurrent_modules, weight_modules


def model_of(
    program: ExportedProgram, path: Path, form: str, digest: str, wish: str | None, reference_name: str
) -> Model:
    """A `Model` around an exported program, whatever it was exported from."""
    with quiet():
        found = canonical(program, path, wish)
    fakes = _declared_inputs(program)
    used = _used(found.network, fakes)
    first = fakes[used[0]]
    batch = None if isinstance(first.shape[0], torch.SymInt) else int(first.shape[0])
    freed = batch is not None and _takes_any_batch(found.network, program, used)
    specs = [_spec(name, fakes[name], found.network, None if freed else batch) for name in used]
    head, head_notes = _head(found, program, specs)
    types = [fakes[name].dtype for name in used]
    return Model(
        network=found.network,
        path=path,
        format=form,
        sha256=digest,
        input=specs[0],
        others=tuple(specs[1:]),
        unused=tuple(name for name in fakes if name not in used),
        output=found.output,
        head=head,
        per_position=found.per_position,
        ops=found.ops,
        names=found.names,
        notes=(*head_notes, *_notes(batch, freed, first.dtype)),
        reference=reference_of(_forward(program, found.output, used), types, batch, _smallest_batch(program, first)),
        reference_name=reference_name,
    )


def _spec(name: str, fake: Tensor, network: nn.Module, batch: int | None) -> InputSpec:
    sizes = tuple(None if isinstance(size, torch.SymInt) else int(size) for size in fake.shape[1:])
    return InputSpec(name, sizes, _audited_type(fake.dtype, network), batch)


def _head(found: Canonical, program: ExportedProgram, specs: list[InputSpec]) -> tuple[str, tuple[str, ...]]:
    """The final layer that was taken off, or what the outputs show when the network is tried; and a sentence."""
    if found.head != "none":
        return found.head, (head_note(found.output, found.head),)
    saved = _saved_inputs(program)
    own = [tuple(saved[spec.name].to(spec.dtype) for spec in specs)] if saved else []
    trials = chain(trial_batches(specs, specs[0].batch or TRIALS), own)
    return guard(found.network, found.output, trials, found.per_position)


def _declared_inputs(program: ExportedProgram) -> dict[str, Tensor]:
    """Names and recorded (fake) values of the tensors that the program takes."""
    specs = program.graph_signature.input_specs
    user = [s.arg.name for s in specs if s.kind is InputKind.USER_INPUT and isinstance(s.arg, TensorArgument)]
    fakes = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return {name: fakes[name] for name in user}


def _used(network: fx.GraphModule, fakes: dict[str, Tensor]) -> list[str]:
    """The inputs that the network reads, which are all that it keeps; the first one where it reads none."""
    given = [node for node in network.graph.nodes if node.op == "placeholder"]
    kept = [node for node in given if node.users] or given[:1]
    for node in [node for node in given if node not in kept]:
        network.graph.erase_node(node)
    network.recompile()
    return [name for node, name in zip(given, fakes, strict=True) if node in kept]


def _audited_type(dtype: torch.dtype, network: torch.nn.Module) -> torch.dtype:
    """Half-precision inputs are fed in the type the network was widened to."""
    return float_type(network) if dtype.is_floating_point else dtype


def _takes_any_batch(network: torch.nn.Module, program: ExportedProgram, used: list[str]) -> bool:
    """Whether a graph exported for one batch size gives every sample the same scores in a larger batch."""
    examples = _examples(program)
    inputs = [examples[name].to(_audited_type(examples[name].dtype, network)) for name in used]
    try:
        with torch.no_grad(), bounded(network):
            alone, more = network(*inputs), network(*(torch.cat([x, x[:1]]) for x in inputs))
    except (RuntimeError, IndexError, ValueError):
        return False
    rows = len(inputs[0]) + 1
    return more.shape[0] == rows and torch.allclose(more, torch.cat([alone, alone[:1]]), rtol=1e-4, atol=1e-5)


def _examples(program: ExportedProgram) -> dict[str, Tensor]:
    """The inputs that the program was exported with where they were saved too, else noise of their shapes."""
    if saved := _saved_inputs(program):
        return saved
    draws = torch.Generator().manual_seed(0)
    return {
        name: torch.rand(fake.shape, generator=draws).to(fake.dtype)
        if fake.dtype.is_floating_point
        else torch.zeros(fake.shape, dtype=fake.dtype)
        for name, fake in _declared_inputs(program).items()
    }


def _saved_inputs(program: ExportedProgram) -> dict[str, Tensor]:
    """By name; empty where none were saved."""
    saved = [leaf for leaf in tree_leaves(program.example_inputs) if isinstance(leaf, Tensor)]
    return dict(zip(_declared_inputs(program), saved, strict=True)) if saved else {}


def _smallest_batch(program: ExportedProgram, fake: Tensor) -> int:
    """The smallest batch that the program's own checks let through."""
    if not isinstance(fake.shape[0], torch.SymInt):
        return 1
    bounds = program.range_constraints.get(fake.shape[0].node.expr)
    return 1 if bounds is None else max(1, int(bounds.lower))


def _forward(program: ExportedProgram, output: str, used: list[str]) -> Callable[..., Tensor]:
    """The program as torch runs it, reduced to the audited output; inputs that this does not read are zeros."""
    module: Callable[..., Any] = program.module()
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    fakes = _declared_inputs(program)

    def forward(*inputs: Tensor) -> Tensor:
        fed = dict(zip(used, inputs, strict=True))
        for name, fake in fakes.items():
            sizes = [len(inputs[0]), *(1 if isinstance(size, torch.SymInt) else size for size in fake.shape[1:])]
            fed.setdefault(name, torch.zeros(sizes, dtype=fake.dtype))
        leaves = [arg.value if isinstance(arg, ConstantArgument) else fed[arg.name] for arg in specs]
        args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        return named_outputs(module(*args, **kwargs))[output]  # type: ignore[no-any-return]

    return forward


def _notes(batch: int | None, freed: bool, dtype: torch.dtype) -> Iterator[str]:
    if freed:
        yield f"The file was exported for batches of {batch}; its graph takes any batch size, which was checked."
    elif batch is not None:
        yield f"The file takes batches of {batch} samples only and is fed such batches."
    if dtype in (torch.float16, torch.bfloat16):
        half = str(dtype).removeprefix("torch.")
        yield f"The file computes in {half}; the audit computes with the same weights in float32 or wider."


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
