"""From an nn.Module or a script to the canonical graph, by running samples: weights alone do not say what they take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from audit.errors import ModelError
from audit.model.base import InputSpec, Model, as_fed, first_line, float_type, quiet, reference_of, runs
from audit.model.canon import head_note, scores_per_position, unexplained_head, unexplained_notes
from audit.model.canon.heads import find_head
from audit.model.torch.outputs import Run, TorchTail, choose_output, named_outputs
from audit.model.torch.program import model_of
from audit.model.torch.torchscript import NOTE, converted, recorded
from audit.settings import Settings

INVERSES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda f: f,
    "softmax": torch.log,
    "log_softmax": lambda f: f,
    "sigmoid": torch.logit,
    "sigmoid_pair": lambda p: torch.logit(p[:, 1:]),
}
"""From an output back to its scores, by HEADS. A softmax forgets a constant per sample, which no loss sees."""
MODULES: dict[str, type[nn.Module]] = {"softmax": nn.Softmax, "log_softmax": nn.LogSoftmax, "sigmoid": nn.Sigmoid}
SAMPLES = 3  # at least, in the batch that is exported: torch.export takes sizes of 0 and 1 for constants


def to_graph(model: Model, example: Tensor, settings: Settings) -> Model:
    """`model` in canonical form, found by running `example` [n, ...] through it."""
    x = _fed(model, example)
    answers = _answers(model, x)
    output = choose_output(answers, settings.output, model.path)
    found = _first_that_agrees(model, x, output)
    name = "TorchScript" if isinstance(model.network, torch.jit.ScriptModule) else "PyTorch"
    return replace(
        found,
        input=InputSpec(model.input.name, tuple(x.shape[1:]), x.dtype, found.input.batch),
        notes=(*model.notes, *found.notes),
        reference=reference_of(_one_output(model.network, output), [x.dtype], None),
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


def _first_that_agrees(model: Model, x: Tensor, output: str) -> Model:
    """The first way to a graph that gives the module's own answers; at the last, a module that runs as it is."""
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
    """Whether graph and module give the same answers, also in a batch of another size where the graph allows that."""
    more = x if found.input.batch else torch.cat([x, x[:1]])
    coarse = 20 if x.dtype in (torch.float16, torch.bfloat16) else 1  # half precision is read as float32
    with torch.no_grad(), quiet():
        ours = found.answer(found.network(as_fed(found.network, more)))
        theirs = named_outputs(network(more))[output]
    if len(theirs) != len(ours) or theirs.numel() != ours.numel():
        return False
    return torch.allclose(ours, theirs.to(ours.dtype).reshape(ours.shape), rtol=coarse * 1e-3, atol=coarse * 1e-4)


def _one_output(network: nn.Module, output: str) -> Callable[[Tensor], Tensor]:
    return lambda x: named_outputs(network(x))[output]


# a module that cannot be exported runs as it is


class Eager(nn.Module):
    """A network reduced to one of its outputs, as one row of scores for each sample."""

    def __init__(self, network: nn.Module, output: str, inverse: str) -> None:
        super().__init__()
        self.network, self.output, self.inverse = network, output, inverse

    def forward(self, x: Tensor) -> Tensor:
        """The scores behind the audited output."""
        answer: Tensor = named_outputs(self.network(x))[self.output]
        return INVERSES[self.inverse](answer.reshape(len(answer), -1))


def _as_it_is(model: Model, output: str, x: Tensor, problem: Exception | None) -> Model:
    """The module itself, its dense layers being the nn.Linear modules in it, its final layer undone."""
    network = copy.deepcopy(model.network)
    _compute_weights(network)
    head, per_position = _head(network, output, x, model.path)
    explained = head != "none"
    inverse = "none" if explained and _leave_out(network, output, x, head) else head
    if not explained:
        head = inverse = unexplained_head(Eager(network, output, "none"), [(x,)], per_position)
    scores = Eager(network, output, inverse).eval().requires_grad_(False)
    layers = [path for path, module in scores.named_modules() if isinstance(module, nn.Linear)]
    why = f"The network could not be exported as a graph ({first_line(problem)}); it runs as it is." if problem else ""
    notes = (head_note(output, head),) if explained else unexplained_notes(output, head)
    return replace(
        model,
        network=scores,
        output=output,
        head=head,
        per_position=per_position,
        ops={path: "linear" for path in layers},
        names={path: path.removeprefix("network.") for path in layers},
        notes=(*filter(None, [why]), *notes),
    )


def _compute_weights(network: nn.Module) -> None:
    """Dense layers whose weight is computed anew in every pass, as weight_norm does, get that weight as a parameter."""
    for path, module in list(network.named_modules()):
        if isinstance(module, nn.Linear) and not isinstance(vars(module)["_parameters"].get("weight"), nn.Parameter):
            layer = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            layer.weight = nn.Parameter(module.weight.detach().clone())
            if module.bias is not None:
                layer.bias = nn.Parameter(module.bias.detach().clone())
            owner, _, name = path.rpartition(".")
            setattr(network.get_submodule(owner), name, layer)


def _head(network: nn.Module, output: str, x: Tensor, path: Path) -> tuple[str, int | None]:
    """The final layer, recognised in the operators of one forward pass, and C of an output [n, T, C]."""
    with torch.no_grad():
        answer = named_outputs(network(x))[output]
    per_position = scores_per_position(path, output, (None, *answer.shape[1:]) if answer.dim() else ())
    try:
        with torch.no_grad(), Run() as run:
            head = find_head(TorchTail(), run.node(named_outputs(network(x))[output]))
    except Exception:  # code that does not bear being watched, such as a compiled part of it
        return "none", per_position
    return head.name if head else "none", per_position


def _leave_out(network: nn.Module, output: str, x: Tensor, head: str) -> bool:
    """Whether the final layer is a module of its own, called once, whose answer is the output: it is left out then."""
    calls: list[tuple[str, Any]] = []
    handles = [
        module.register_forward_hook(lambda _module, _inputs, answer, path=path: calls.append((path, answer)))
        for path, module in network.named_modules()
        if head in MODULES and isinstance(module, MODULES[head])
    ]
    with torch.no_grad():
        answer = named_outputs(network(x))[output]
    for handle in handles:
        handle.remove()
    last = [path for path, value in calls if value is answer]
    if len(last) != 1 or [path for path, _ in calls].count(last[0]) != 1:
        return False
    owner, _, name = last[0].rpartition(".")
    setattr(network.get_submodule(owner), name, nn.Identity())
    return True
