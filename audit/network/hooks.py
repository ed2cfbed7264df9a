"""Looking into a network while it runs: scores, hooks, and what every layer was given and answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from audit.errors import ModelError
from audit.model.parity import COUPLED

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

Calls = list[tuple[Tensor, Tensor]]  # (input, output) of each time a module was called in one forward pass


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that runs while it is on."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: torch need not load its compiler, which takes a second, only to keep it out."""
        return False


def scores(network: nn.Module, x: Tensor) -> Tensor:
    """Scores f [n, C] of the samples x [n, …]: a network with one output may answer [n]."""
    return _rows(network(x), len(x))


def _rows(f: Tensor, n: int) -> Tensor:
    if f.dim() == 0 or len(f) != n:
        raise ModelError(
            f"{n} samples give an answer of shape {list(f.shape)}, not one row of scores each; export the model with "
            "an output [n, classes] and a free batch size."
        )
    return f.reshape(n, -1)


@torch.no_grad()
def watch(
    network: nn.Module, x: Tensor, runner: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Mapping[str, Calls]]:
    """One forward pass: the scores, and input and output of every call of every dense layer and convolution.

    `runner` runs the network on x in another way than by calling it.
    """
    calls: dict[str, Calls] = defaultdict(list)

    def keep(path: str) -> Callable[..., None]:
        return lambda _module, inputs, output: calls[path].append((inputs[0].clone(), output.clone()))

    watched = {
        path: keep(path)
        for path, module in modules_with_weights(network).items()
        if isinstance(module, (nn.Linear, *CONVOLUTIONS))
    }
    with hooked(network, watched):
        return _rows((runner or network)(x), len(x)), calls


def is_fixed_batch_norm(module: nn.Module) -> bool:
    """An ONNX file's BatchNormalization: an operator that is handed its statistics as inputs 3 and 4."""
    own = dict(module.named_parameters(recurse=False))
    return module.extra_repr() == "batch_norm" and set(own) == {"weight", "bias"}


@contextmanager
def hooked(
    network: nn.Module,
    hooks: Mapping[str, Callable[..., Tensor | None]],
    before: Mapping[str, Callable[..., Tensor | None]] | None = None,
) -> Iterator[None]:
    """Forward hooks by module path, and hooks that come `before` a module runs, taken off again whatever happens."""
    with ExitStack() as stack:
        for path, hook in hooks.items():
            stack.callback(network.get_submodule(path).register_forward_hook(hook).remove)
        for path, hook in (before or {}).items():
            stack.callback(network.get_submodule(path).register_forward_pre_hook(hook).remove)
        yield


def arrange(values: Tensor, n: int, batch_axis: int, feature_axis: int) -> Tensor:
    """A layer's raw input or output as [n, T, features], from where samples and features lie in it.

    >>> arrange(torch.zeros(5, 3, 8), n=3, batch_axis=1, feature_axis=-1).shape  # 5 tokens of 3 samples
    torch.Size([3, 5, 8])
    """
    if feature_axis != -1:
        values = values.movedim(feature_axis, -1)
    return values.movedim(batch_axis, 0).reshape(n, -1, values.shape[-1])


def has_convolutions(network: nn.Module) -> bool:
    """Whether any module is a convolution."""
    return any(isinstance(module, CONVOLUTIONS) for module in network.modules())


def modules_with_weights(network: nn.Module) -> dict[str, nn.Module]:
    """Modules that own parameters themselves; shared ones once, under their first name."""
    return {path: module for path, module in network.named_modules() if any(True for _ in module.parameters(False))}


# A network that has run once, every value kept, so that it can run again from any of its layers on.
#
# "What would the scores be, had this layer answered something else?" is asked of every layer. A graph only computes
# again what depends on that layer, which for the last layers of a large network is next to nothing.


class Replay:
    """Scores `f` [n, C] of x, and input and output of every `calls` of every dense layer and convolution."""

    @torch.no_grad()
    def __init__(self, network: nn.Module, x: Tensor) -> None:
        self._network, self.x = network, x
        self._graph = network if isinstance(network, fx.GraphModule) and not _overwrites(network) else None
        self._values: dict[fx.Node, object] = {}
        runner = self._run_and_keep if self._graph is not None else network
        self.f, self.calls = watch(network, x, runner)

    def _run_and_keep(self, x: Tensor) -> Tensor:
        assert self._graph is not None
        interpreter = fx.Interpreter(self._graph, garbage_collect_values=False)
        answer: Tensor = interpreter.run(x)
        self._values = interpreter.env
        return answer

    @torch.no_grad()
    def again(self, path: str, answers: list[Tensor]) -> Tensor:
        """The scores, had the layer given these answers, one for each of its calls."""
        if self._graph is None:
            return self._from_the_start(path, answers)
        layer, given = self._network.get_submodule(path), iter(answers)
        changed: dict[fx.Node, object] = {}
        for node in self._graph.graph.nodes:
            if node.op == "call_module" and self._network.get_submodule(str(node.target)) is layer:
                changed[node] = next(given)
        stale = _behind(self._graph, changed)
        known = {node: value for node, value in self._values.items() if node not in stale}
        answer: Tensor = fx.Interpreter(self._graph).run(self.x, initial_env=known | changed)
        return answer.reshape(len(self.x), -1)

    def _from_the_start(self, path: str, answers: list[Tensor]) -> Tensor:
        given = iter(answers)
        with hooked(self._network, {path: lambda _module, _inputs, _z: next(given)}):
            answer: Tensor = self._network(self.x)
        return answer.reshape(len(self.x), -1)


def _behind(network: fx.GraphModule, sources: dict[fx.Node, object]) -> set[fx.Node]:
    """Every node whose value depends on one of the sources."""
    found = set(sources)
    for node in network.graph.nodes:
        if node.op == "output" or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _overwrites(network: fx.GraphModule) -> bool:
    """Whether a value may change after it was kept: by a module that works in place, or an operator such as add_."""
    if any(getattr(module, "inplace", False) for module in network.modules()):
        return True
    return any(_mutates(node) for node in network.graph.nodes)


def _mutates(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op == "call_function" and schema is not None:
        return bool(schema.is_mutable)
    return node.op == "call_method" and str(node.target).endswith("_")


# Interventions on single layers: whose scores depend on whose answer?
# A few samples run through the network. Then one sample, the taker, is given another's answer at one layer. Only the
# taker's scores may move; and if they become those of the giver, then all paths to the output run through that layer.


ALIKE = 1e-3
"""Scores agree where they differ by less than this share of the distance between taker and giver, …"""
ROUNDING = 64
"""… or by less than so many units in the last place of the largest score."""
COMPANY = 1e-3
"""Beyond this share of the largest score, a sample's own scores moved because another one left the batch."""


@dataclass(frozen=True)
class Influence:
    """What depends on one layer's answer to one sample."""

    others: bool  # scores of other samples
    own: bool  # the sample's own scores
    alone: bool  # its own scores, and these on nothing else


class Probe:
    """A few samples, and what every layer made of them."""

    def __init__(self, network: nn.Module, example: Tensor, batch: int | None) -> None:
        self.n = batch or len(example)
        self.a = example[: self.n]
        self._run = Replay(network, self.a)
        self._other = self._run if self.n > 1 else Replay(network, example[1:2])
        self.calls = self._run.calls
        if not (torch.isfinite(self._run.f).all() and torch.isfinite(self._other.f).all()):
            raise ModelError(
                "the network answers NaN or infinity to the samples it was tried on; check the weights of the model "
                "and the preprocessing of the data."
            )
        self._fewer = None if batch or self.n < 3 else self._without_the_first(network, example)
        self._taker, self._giver = _farthest(self._run.f, self._other.f)

    def _without_the_first(self, network: nn.Module, example: Tensor) -> Mapping[str, Calls]:
        f, calls = watch(network, example[1:])
        scale = float(self._run.f.abs().max())
        if not _close(f, self._run.f[1:], COMPANY * scale):
            raise ModelError(COUPLED)
        return calls

    def batch_axis(self, path: str) -> int | None:
        """The axis that shrinks with the batch; with a fixed batch, the first that is a multiple of it."""
        shape = self.calls[path][0][1].shape
        if self._fewer is None:
            axes = [axis for axis in range(len(shape) - 1) if shape[axis] % self.n == 0]
        else:
            fewer = self._fewer[path][0][1].shape
            axes = [axis for axis in range(len(shape)) if shape[axis] * (self.n - 1) == fewer[axis] * self.n]
        return axes[0] if axes else None

    def influence(self, path: str, axis: int) -> Influence:
        """Gives the taker the giver's answer at this layer, and looks at whose scores move."""
        before, goal = self._run.f, self._other.f[self._giver]
        after = self._exchanged(path, axis)
        distance = float((before[self._taker] - goal).abs().max())
        rounding = ROUNDING * torch.finfo(before.dtype).eps * float(before.abs().max())
        rest = torch.arange(self.n) != self._taker
        own = not torch.equal(after[self._taker], before[self._taker])
        return Influence(
            others=self.n > 1 and not _close(after[rest], before[rest], max(ALIKE * distance, rounding)),
            own=own or not torch.equal(self._exchanged(path, axis, noise=1.0)[self._taker], before[self._taker]),
            alone=_close(after[self._taker], goal, max(ALIKE * distance, rounding)),
        )

    def inputs(self, path: str, batch_axis: int, feature_axis: int) -> Tensor:
        """What the layer was given [n, T, in], over all its calls."""
        return torch.cat([arrange(x, self.n, batch_axis, feature_axis) for x, _ in self.calls[path]], 1)

    def _exchanged(self, path: str, axis: int, noise: float = 0.0) -> Tensor:
        """Scores when the layer answers the taker as it does the giver, shifted by `noise`."""
        answers = []
        for (_, z), (_, other) in zip(self.calls[path], self._other.calls[path], strict=True):
            mixed, count = z.clone(), z.shape[axis] // self.n
            source = other.narrow(axis, self._giver * count, count)
            mixed.narrow(axis, self._taker * count, count).copy_(source + noise * (1 + source.abs().mean()))
            answers.append(mixed)
        return self._run.again(path, answers)


def _farthest(takers: Tensor, givers: Tensor) -> tuple[int, int]:
    """The two samples whose scores differ most: equal ones would tell nothing."""
    distances = (takers[:, None] - givers[None]).abs().amax(-1)
    place = int(distances.argmax())
    return place // len(givers), place % len(givers)


def _close(first: Tensor, second: Tensor, tolerance: float) -> bool:
    return bool(((first - second).abs() <= tolerance).all())
