"""From a plain module to the canonical graph, once a sample is at hand: weights alone do not say what they take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from audit.errors import ModelError
from audit.model.base import HEADS, InputSpec, Model
from audit.model.batches import runs
from audit.model.foreign import first_line, float_type, head_note, quiet, reference_of
from audit.model.torch.outputs import choose_output, named_outputs
from audit.model.torch.pt2 import model_of
from audit.model.torch.recording import NOTE, recorded
from audit.model.torch.torchscript import converted
from audit.model.torch.unexported import picked
from audit.settings import Settings

SAMPLES = 3  # at least, in the batch that is traced: torch.export takes sizes of 0 and 1 for constants


def to_graph(model: Model, example: Tensor, settings: Settings) -> Model:
    """`model` in canonical form, found by running `example` [n, ...] through it."""
    x = _fed(model, example)
    answers = _answers(model, x)
    output = choose_output(answers, settings.output, model.path)
    traced = _traced(model, x, output)
    original = _pickable(model.network, output)
    name = "TorchScript" if isinstance(model.network, torch.jit.ScriptModule) else "PyTorch"
    return replace(
        traced,
        input=InputSpec(model.input.name, tuple(x.shape[1:]), x.dtype, traced.input.batch),
        notes=(*model.notes, *traced.notes),
        reference=reference_of(original, x.dtype, None),
        reference_name=name,
    )


def _fed(model: Model, example: Tensor) -> Tensor:
    """A small batch in a type that the network takes: the float type of its weights, or integers for an embedding."""
    x = example if len(example) >= SAMPLES else example[:1].repeat(SAMPLES, *[1] * (example.dim() - 1))
    kinds = (float_type(model.network), torch.int64)
    for kind in kinds if example.is_floating_point() else (example.dtype, torch.int64, kinds[0]):
        exact = kind.is_floating_point or bool((x.to(kind) == x).all())
        if exact and runs(model.network, x.to(kind)):
            return x.to(kind)
    return x.to(kinds[0]) if example.is_floating_point() else x


def _answers(model: Model, x: Tensor) -> dict[str, Any]:
    try:
        with torch.no_grad(), quiet():
            return named_outputs(model.network(x))
    except Exception as error:  # a user's forward may raise anything
        raise ModelError(
            f"{model.path}: does not run on samples of shape {list(x.shape[1:])} ({first_line(error)}); check the "
            "shape of the data, or --reshape and --dtype."
        ) from error


def _traced(model: Model, x: Tensor, output: str) -> Model:
    """The first way to a graph that gives the module's own answers; at the last, a plain module itself."""
    is_script = isinstance(model.network, torch.jit.ScriptModule)
    problem: Exception | None = None
    for way in (_converted, _recorded) if is_script else (_any_batch, _this_batch):
        try:
            with quiet(), unfused():
                found = way(model, x, output)
            if _agrees(found, model.network, output, x):
                return found
        except ModelError as error:
            if not is_script or way is _recorded:
                raise
            problem = problem or error
        except Exception as error:  # exporters fail in as many ways as there are models
            problem = problem or error
    if not is_script:
        return _as_it_is(model, output, x, problem)
    reason = first_line(problem) if problem else "its answers could not be reproduced"
    raise ModelError(
        f"{model.path}: this TorchScript cannot be turned into a differentiable graph ({reason}); audit the source "
        "model: export it to ONNX or .pt2, or save its state_dict and pass --arch."
    ) from problem


def _any_batch(model: Model, x: Tensor, output: str) -> Model:
    return _exported(model, x, output, ({0: Dim.AUTO},))


def _this_batch(model: Model, x: Tensor, output: str) -> Model:
    return _exported(model, x, output, None)


def _exported(model: Model, x: Tensor, output: str, shapes: tuple[dict[int, Any]] | None) -> Model:
    with redirect_stderr(StringIO()):  # where torch prints half a graph when it fails
        program = torch.export.export(copy.deepcopy(model.network), (x,), dynamic_shapes=shapes, strict=False)
    return _model_of(program, model, output)


def _converted(model: Model, x: Tensor, output: str) -> Model:
    return _model_of(converted(_script(model), x), model, output)


def _recorded(model: Model, x: Tensor, output: str) -> Model:
    found = _model_of(recorded(_script(model), x), model, output)
    return replace(found, notes=(*found.notes, NOTE))


def _model_of(program: ExportedProgram, model: Model, output: str) -> Model:
    return model_of(program, model.path, model.format, model.sha256, output, reference_name="")


def _script(model: Model) -> torch.jit.ScriptModule:
    assert isinstance(model.network, torch.jit.ScriptModule)
    return model.network


@contextmanager
def unfused() -> Iterator[None]:
    """Without the fused fast path of nn.TransformerEncoder, which hides its dense layers."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _agrees(found: Model, network: nn.Module, output: str, x: Tensor) -> bool:
    """Whether graph and module give the same scores, also in a batch of another size where the graph allows that."""
    more = x if found.input.batch else torch.cat([x, x[:1]])
    fed = more.to(float_type(found.network)) if more.is_floating_point() else more  # half precision is read as float32
    coarse = 20 if x.dtype in (torch.float16, torch.bfloat16) else 1
    with torch.no_grad(), quiet():
        ours, theirs = HEADS[found.head](found.network(fed)), named_outputs(network(more))[output]
    if ours.shape != theirs.shape:
        return False
    return torch.allclose(ours, theirs.to(ours.dtype), rtol=coarse * 1e-3, atol=coarse * 1e-4)


def _pickable(network: nn.Module, output: str) -> Callable[[Tensor], Tensor]:
    return lambda x: named_outputs(network(x))[output]


def _as_it_is(model: Model, output: str, x: Tensor, problem: Exception | None) -> Model:
    """The module itself, its dense layers being the nn.Linear modules in it."""
    network, head = picked(model.network, output, x)
    layers = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    notes = (
        [f"The network could not be exported as a graph ({first_line(problem)}); it runs as it is."] if problem else []
    )
    return replace(
        model,
        network=network,
        output=output,
        head=head,
        ops={path: "linear" for path in layers},
        names={path: path.removeprefix("network.") for path in layers},
        notes=(*notes, *([head_note(head)] if head != "none" else [])),
    )
