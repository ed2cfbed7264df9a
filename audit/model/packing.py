"""Several inputs of a sample as one row of numbers, and the network that takes such rows.

An audit knows samples as one tensor [n, ...]. The row of a sample holds its inputs one after the other; slots in front
of the network cut them out again, in the shape and the number type that each has. Where an input is continuous the rows
are floats, and only it is differentiated: tokens and masks are constants. Where none is, the rows are whole numbers, as
those of a network that takes tokens alone.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from audit.model import canonical_form
from audit.model.base import InputSpec, Model, Part, Reference, float_type, quiet
from audit.settings import Settings

Shape = tuple[int, ...]
Array = NDArray[Any]
PREFIX = "network."
EXACT_IN_FLOAT32 = 2**24


def inputs_of(module: nn.Module) -> tuple[InputSpec, ...]:
    """What the module's forward takes, by the names of its arguments; those with a default are optional.

    A first argument is the input whatever it is; beyond it, only those that can be given by name count.
    """
    kind = float_type(module)
    if isinstance(module, torch.jit.ScriptModule):
        schema: Any = module.forward.schema  # type: ignore[attr-defined]
        given = [(argument.name, argument.has_default_value()) for argument in schema.arguments[1:]]
    else:
        given = _arguments(module)
    specs = [InputSpec(name, None, kind, optional=optional) for name, optional in given]
    return tuple(specs) or (InputSpec("input", None, kind),)


def _arguments(module: nn.Module) -> list[tuple[str, bool]]:
    try:
        arguments = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        (argument.name, argument.default is not argument.empty)
        for place, argument in enumerate(arguments)
        if argument.kind in named or place == 0
    ]


def parts_of(inputs: Sequence[InputSpec], shapes: Mapping[str, Shape]) -> tuple[Part, ...]:
    """Where each input lies in a row, given the shape that it has in a sample."""
    parts: list[Part] = []
    for spec in inputs:
        parts.append(Part(spec.name, shapes[spec.name], spec.dtype, parts[-1].stop if parts else 0))
    return tuple(parts)


def rows_dtype(parts: Sequence[Part]) -> torch.dtype:
    """The number type of the rows."""
    return torch.float64 if any(part.is_continuous for part in parts) else torch.int64


def encode(parts: Sequence[Part], inputs: Mapping[str, Array]) -> Array:
    """Inputs [n, *shape] each, as rows [n, D]. In whole rows, the floats of a mask are kept bit by bit."""
    floats = rows_dtype(parts) is torch.float64
    kind = _exact_floats([inputs[part.name] for part in parts]) if floats else np.int64
    columns = []
    for part in parts:
        values = inputs[part.name].reshape(len(inputs[part.name]), -1)
        by_bits = part.dtype.is_floating_point and not floats
        columns.append(values.astype(np.float64).view(np.int64) if by_bits else values.astype(kind))
    return np.concatenate(columns, axis=1)


def _exact_floats(arrays: Sequence[Array]) -> type[np.floating[Any]]:
    """float32 where it holds every number exactly, else float64."""
    narrow = (x.dtype.kind == "b" or np.can_cast(x.dtype, np.float32) or _small_whole(x) for x in arrays)
    return np.float32 if all(narrow) else np.float64


def _small_whole(x: Array) -> bool:
    return x.dtype.kind in "iu" and (x.size == 0 or max(-int(x.min()), int(x.max())) <= EXACT_IN_FLOAT32)


def decode(parts: Sequence[Part], rows: Array) -> list[Array]:
    """What `encode` was given, in the number types that the network takes."""
    decoded = []
    for part in parts:
        slot = Slot(part, torch.float64)
        decoded.append(slot(torch.from_numpy(np.ascontiguousarray(rows))).numpy())
    return decoded


def continuous_only(spec: InputSpec, x: Tensor) -> Tensor:
    """Rows x [n, D] with 0 in the place of tokens and masks, whose sizes mean nothing."""
    if all(part.is_continuous for part in spec.parts):
        return x
    kept = x.new_zeros(x.shape[1])
    for part in spec.parts:
        kept[part.start : part.stop] = part.is_continuous
    return x * kept


class Slot(nn.Module):
    """Cuts one input out of the rows: [n, D] → [n, *shape]."""

    anchor: Tensor

    def __init__(self, part: Part, dtype: torch.dtype) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("anchor", torch.zeros((), dtype=dtype), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """The input in the network's own float type, whatever `network.to(...)` has made of it, or in its whole one."""
        part = self.part
        values = rows[:, part.start : part.stop]
        if part.dtype.is_floating_point:
            values = values if rows.is_floating_point() else values.view(torch.float64)
            values = values.to(self.anchor.dtype)
        else:
            values = values.to(part.dtype)
        values = values if part.is_continuous else values.detach()
        return values.reshape(-1, *part.shape)


class Unpacked(nn.Module):
    """A module of several inputs, by the names of its arguments, as one that takes rows."""

    def __init__(self, network: nn.Module, parts: Sequence[Part]) -> None:
        super().__init__()
        self.network, self.names = network, [part.name for part in parts]
        self.slots = nn.ModuleList(Slot(part, float_type(network)) for part in parts)

    def forward(self, rows: Tensor) -> Any:
        """Whatever the module answers."""
        return self.network(**{name: slot(rows) for name, slot in zip(self.names, self.slots, strict=True)})


def pack(model: Model, shapes: Mapping[str, Shape]) -> Model:
    """A model of several inputs, whose network is a graph, as one that takes rows."""
    parts = parts_of(model.inputs, shapes)
    return replace(
        model,
        network=_with_slots(model.network, parts),
        input=packed_input(model.input, parts),
        reference=None if model.reference is None else _fed_rows(model.reference, parts),
        notes=(*model.notes, note(parts)),
        others=(),
    )


def packed_module(model: Model, parts: tuple[Part, ...], rows: Tensor, settings: Settings) -> Model:
    """A module of several inputs, in canonical form, as a model that takes rows; `rows` are a few of them."""
    network: nn.Module = Unpacked(model.network, parts)
    if isinstance(model.network, torch.jit.ScriptModule):
        with torch.no_grad(), quiet():
            network = torch.jit.trace(network, rows, check_trace=False)  # type: ignore[no-untyped-call]
    found = canonical_form(replace(model, network=network, others=()), rows, settings=settings)
    found = replace(found, input=packed_input(found.input, parts), notes=(*found.notes, note(parts)))
    return _without_wrapper(found)


def _without_wrapper(model: Model) -> Model:
    """The model with everything under the names that the module gave it; one that runs as it is keeps its paths."""
    names = {path: model.names.get(path, path).removeprefix(PREFIX) for path in model.ops}
    if not isinstance(model.network, fx.GraphModule):
        return replace(model, names=names)
    graph, modules = copy.deepcopy(model.network.graph), {}
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            value = _attribute(model.network, str(node.target))
            node.target = str(node.target).removeprefix(PREFIX)
            modules[node.target] = value
    return replace(
        model,
        network=fx.GraphModule(modules, graph, "Network").eval(),
        ops={path.removeprefix(PREFIX): op for path, op in model.ops.items()},
        names={path.removeprefix(PREFIX): name for path, name in names.items()},
    )


def packed_input(spec: InputSpec, parts: tuple[Part, ...]) -> InputSpec:
    """The one input that takes the rows."""
    name = ", ".join(part.name for part in parts)
    return InputSpec(name, (parts[-1].stop,), rows_dtype(parts), spec.batch, parts=parts)


def note(parts: Sequence[Part]) -> str:
    """What the report says of the inputs."""
    listed = ", ".join(f"{part.name} {list(part.shape)} {str(part.dtype).removeprefix('torch.')}" for part in parts)
    fixed = [part.name for part in parts if not part.is_continuous]
    constants = f"; {' and '.join(fixed)} are tokens or masks, which nothing is differentiated in" if fixed else ""
    return f"Every sample has {len(parts)} inputs, fed by name: {listed}{constants}."


def _with_slots(network: nn.Module, parts: Sequence[Part]) -> fx.GraphModule:
    assert isinstance(network, fx.GraphModule)
    graph = fx.Graph()
    rows = graph.placeholder("rows")
    modules: dict[str, Any] = {}
    given = [node for node in network.graph.nodes if node.op == "placeholder"]
    copies: dict[fx.Node, fx.Node] = {}
    for number, (node, part) in enumerate(zip(given, parts, strict=True)):
        modules[f"slot_{number}"] = Slot(part, float_type(network))
        copies[node] = graph.call_module(f"slot_{number}", (rows,))
    graph.output(graph.graph_copy(network.graph, copies))
    for node in network.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            modules[str(node.target)] = _attribute(network, str(node.target))
    return fx.GraphModule(modules, graph).eval()


def _attribute(network: nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(network.get_submodule(owner), name)


def _fed_rows(reference: Reference, parts: Sequence[Part]) -> Reference:
    return lambda rows: reference(*decode(parts, rows))
