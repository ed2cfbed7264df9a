"""`.pt2` files: programs saved by torch.export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils._pytree import tree_leaves

from audit.errors import ModelError
from audit.model.base import InputSpec, Model
from audit.model.detect import sha256
from audit.model.foreign import check_weights, first_line, float_type, head_note, quiet, reference_of
from audit.model.torch.archive import checked_archive
from audit.model.torch.outputs import named_outputs
from audit.model.torch.program import Canonical, canonical
from audit.settings import Settings


def load(path: Path, settings: Settings) -> Model:
    """The program in canonical form. Nothing in it is unpickled unless the user trusts it."""
    program = _program(path, settings.trust_pickle)
    check_weights({**program.state_dict, **program.constants}, path)
    return model_of(program, path, "pt2", sha256(path), settings.output, reference_name="torch.export")


def model_of(
    program: ExportedProgram, path: Path, form: str, digest: str, wish: str | None, reference_name: str
) -> Model:
    """A `Model` around an exported program, whatever it was exported from."""
    with quiet():
        found = canonical(program, path, wish)
    name, example = _input(program)
    batch = None if isinstance(example.shape[0], torch.SymInt) else int(example.shape[0])
    rewritten = batch is not None and _takes_any_batch(found.network, program, example)
    return Model(
        network=found.network,
        path=path,
        format=form,
        sha256=digest,
        input=InputSpec(
            name=name,
            shape=tuple(None if isinstance(size, torch.SymInt) else int(size) for size in example.shape[1:]),
            dtype=_audited_type(example.dtype, found.network),
            batch=None if rewritten else batch,
        ),
        output=found.output,
        head=found.head,
        ops=found.ops,
        names=found.names,
        notes=tuple(_notes(found, batch, rewritten, example.dtype)),
        reference=reference_of(
            _forward(program, found.output), example.dtype, batch, smallest=_smallest_batch(program, example)
        ),
        reference_name=reference_name,
    )


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


def _input(program: ExportedProgram) -> tuple[str, Tensor]:
    """Name and recorded (fake) value of the one tensor the program takes."""
    specs = program.graph_signature.input_specs
    name = next(s.arg.name for s in specs if s.kind is InputKind.USER_INPUT and isinstance(s.arg, TensorArgument))
    return name, next(node.meta["val"] for node in program.graph.nodes if node.name == name)


def _audited_type(dtype: torch.dtype, network: torch.nn.Module) -> torch.dtype:
    """Half-precision inputs are fed in the type the network was widened to."""
    return float_type(network) if dtype.is_floating_point else dtype


def _takes_any_batch(network: torch.nn.Module, program: ExportedProgram, fake: Tensor) -> bool:
    """Whether a graph exported for one batch size gives every sample the same scores in a larger batch."""
    dtype = _audited_type(fake.dtype, network)
    x = _example(program, fake).to(dtype)
    try:
        with torch.no_grad():
            alone, more = network(x), network(torch.cat([x, x[:1]]))
    except (RuntimeError, IndexError, ValueError):
        return False
    return more.shape[0] == len(x) + 1 and torch.allclose(more, torch.cat([alone, alone[:1]]), rtol=1e-4, atol=1e-5)


def _example(program: ExportedProgram, fake: Tensor) -> Tensor:
    """The input that the program was exported with where it was saved too, else noise of its shape."""
    saved = [leaf for leaf in tree_leaves(program.example_inputs) if isinstance(leaf, Tensor)]
    if saved:
        return saved[0]
    if not fake.dtype.is_floating_point:
        return torch.zeros(fake.shape, dtype=fake.dtype)
    return torch.rand(fake.shape, generator=torch.Generator().manual_seed(0)).to(fake.dtype)


def _smallest_batch(program: ExportedProgram, fake: Tensor) -> int:
    """The smallest batch that the program's own checks let through."""
    if not isinstance(fake.shape[0], torch.SymInt):
        return 1
    bounds = program.range_constraints.get(fake.shape[0].node.expr)
    return 1 if bounds is None else max(1, int(bounds.lower))


def _forward(program: ExportedProgram, output: str) -> Callable[[Tensor], Tensor]:
    """The program as torch runs it, reduced to the audited output."""
    module: Callable[[Tensor], Any] = program.module()
    return lambda x: named_outputs(module(x))[output]


def _notes(found: Canonical, batch: int | None, rewritten: bool, dtype: torch.dtype) -> Iterator[str]:
    yield from found.notes
    if found.head != "none":
        yield head_note(found.head)
    if rewritten:
        yield f"The file was exported for batches of {batch}; its graph takes any batch size, which was checked."
    elif batch is not None:
        yield f"The file takes batches of {batch} samples only and is fed such batches."
    if dtype in (torch.float16, torch.bfloat16):
        half = str(dtype).removeprefix("torch.")
        yield f"The file computes in {half}; the audit computes with the same weights in float32 or wider."
