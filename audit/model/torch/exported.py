"""The `Model` around an exported program: what it takes, its scores, and the program itself as the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_leaves

from audit.model.base import InputSpec, Model, quiet
from audit.model.batches import float_type, reference_of, trial_batches
from audit.model.canon.scores import TRIALS, guard, head_note
from audit.model.torch.outputs import named_outputs
from audit.model.torch.program import Canonical, canonical


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
        reference=reference_of(
            _forward(program, found.output, used),
            [fakes[name].dtype for name in used],
            batch,
            _smallest_batch(program, first),
        ),
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
        with torch.no_grad():
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
