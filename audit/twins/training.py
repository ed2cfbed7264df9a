"""Draws K networks of one kind anew and trains them at once, each from its own seed, down to one train loss.

A network that has reached it leaves the stack; one that diverges begins anew at half its rate, and is counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from audit.maths.blocks import blocks
from audit.network.hooks import CONVOLUTIONS, modules_with_weights
from audit.network.loss import LOSS_OF_TASK
from audit.twins import Recipe
from audit.twins.optimizers import adjustment, optimizer_for, patience
from audit.twins.stack import LOSSES, AnyStack, Chain, DenseStack, Stack, Stacked

AT_ONCE = 1000  # samples of a network in one pass over all of them
NEAR = 1.5  # times the target: from there on the exact train loss is looked at after every epoch …
EVERY = 10  # … and before it after so many
DIVERGED = 3.0  # times the loss at the start, in the mean over an epoch
MOST_RESTARTS = 4
LATE = 10.0  # times the target: from there on regularizers are at work
STALE = 0.02  # share by which the loss must fall


@dataclass(frozen=True)
class Samples:
    """Train samples as the network takes them."""

    x: Tensor  # [n, …]
    y: Tensor  # [n] classes, or [n, k] targets
    task: str


@dataclass(frozen=True)
class Lesson:
    """What one network is taught with: rows of the samples, and labels where they are not the samples' own."""

    seed: int
    rows: Tensor  # [m]
    labels: Tensor | None = None  # [n], or [n, k]


@dataclass(frozen=True)
class Architecture:
    """What is trained: a network whose parameters are drawn anew, and the chain that it is, if it is one."""

    network: nn.Module
    chain: Chain | None

    def stacked(self, recipe: Recipe, seeds: list[int]) -> Stack:
        """K networks before training."""
        starts = [drawn_start(self.network, recipe, seed) for seed in seeds]
        parameters = {name: torch.stack([start[name] for start in starts]) for name in starts[0]}
        if self.chain is not None:
            return DenseStack(self.chain, parameters, recipe.dropout)
        return AnyStack(self.network, parameters)


@dataclass(frozen=True)
class Goal:
    """When training ends."""

    target: float  # mean train loss
    deadline: float = math.inf  # by time.monotonic: what is not finished then is given up
    last: bool = False  # the network as it is at the end, not the best one that was looked at: of those that settle


@dataclass
class Trained:
    """One network after training."""

    lesson: Lesson
    tensors: Stacked = field(default_factory=dict)  # parameters and running statistics, by name
    train_loss: float = math.nan  # exact, on its own samples
    reached: bool = False
    interrupted: bool = False  # by the deadline
    restarts: int = 0
    epochs: int = 0  # since its last restart
    losses: list[float] = field(default_factory=list)  # mean over the batches of each epoch

    def keep_better(self, loss: float, tensors: Callable[[], Stacked]) -> None:
        """Remembers the network of the smallest train loss that was looked at: the last one may be at a spike."""
        if not self.tensors or not loss >= self.train_loss:
            self.train_loss, self.tensors = loss, tensors()


class Training:
    """The networks at work."""

    def __init__(self, architecture: Architecture, samples: Samples, recipe: Recipe, lessons: list[Lesson]) -> None:
        self._architecture, self._samples, self._recipe = architecture, samples, recipe
        self._loss, self._adjust = LOSSES[samples.task], adjustment(recipe, samples.task)
        self._active = [Trained(lesson) for lesson in lessons]
        self._finished: list[Trained] = []
        self._patience = patience(recipe, len(lessons[0].rows))
        self._stack = architecture.stacked(recipe, [lesson.seed for lesson in lessons])
        self._orders = [_generator(lesson.seed, "order") for lesson in lessons]
        rates = torch.full((len(lessons),), recipe.rate, dtype=next(iter(self._stack.parameters.values())).dtype)
        self._optimizer = optimizer_for(recipe, self._stack.parameters, rates)

    def run(self, goal: Goal) -> list[Trained]:
        """All networks, in the order of their lessons."""
        lessons = [trained.lesson for trained in self._active]
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(lessons[0].seed)  # of the units that dropout leaves out
            while self._active and time.monotonic() < goal.deadline:
                self._epoch(goal)
                self._restart_diverged()
                self._release(goal)
            self._look(goal)
            for one in self._active:
                one.interrupted = True
            self._finish(list(range(len(self._active))))
        return sorted(self._finished, key=lambda trained: lessons.index(trained.lesson))

    def _epoch(self, goal: Goal) -> None:
        adjust = self._adjust if self._is_late(goal) else None
        orders = torch.stack(
            [one.lesson.rows[torch.randperm(len(one.lesson.rows), generator=g)] for one, g in self._both()]
        )
        total = torch.zeros(len(orders))
        for batch in torch.split(orders, self._recipe.batch, 1):
            x, y = self._batch(batch)
            values, gradients = self._stack.gradients(x, y, self._loss)
            gradients = gradients if adjust is None else adjust(self._stack, x, y, gradients)
            self._optimizer.step(gradients)
            total += values.sum(1)
        for one, loss in zip(self._active, (total / orders.shape[1]).tolist(), strict=True):
            one.epochs += 1
            one.losses.append(loss)

    def _is_late(self, goal: Goal) -> bool:
        """Whether regularizers are at work: the paper has them late, when the loss is no longer falling fast."""
        return any(one.losses and one.losses[-1] <= LATE * goal.target for one in self._active)

    def _both(self) -> list[tuple[Trained, torch.Generator]]:
        return list(zip(self._active, self._orders, strict=True))

    def _batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Samples and labels at rows [K, b]: [K, b, …]."""
        x, y = self._samples.x, self._samples.y
        chosen = x.index_select(0, rows.flatten()).reshape(*rows.shape, *x.shape[1:])
        if self._active[0].lesson.labels is None:
            return chosen, y.index_select(0, rows.flatten()).reshape(*rows.shape, *y.shape[1:])
        own = [one.lesson.labels for one in self._active]
        return chosen, torch.stack([y[at] for y, at in zip(own, rows, strict=True) if y is not None])

    def _restart_diverged(self) -> None:
        for place, one in enumerate(self._active):
            if one.restarts >= MOST_RESTARTS or not _has_diverged(one.losses):
                continue
            one.restarts, one.epochs, one.losses, one.tensors = one.restarts + 1, 0, [], {}
            self._orders[place] = _generator(one.lesson.seed, "order")
            for name, value in drawn_start(self._architecture.network, self._recipe, one.lesson.seed).items():
                self._stack.parameters[name][place] = value
            self._optimizer.forget(place)
            self._optimizer.rates[place] /= 2

    def _release(self, goal: Goal) -> None:
        """Lets go of the networks that have arrived, and of those that will not."""
        most = self._recipe.epochs
        last = [
            one.epochs >= most or _is_stuck(one.losses, self._patience) or _has_diverged(one.losses)
            for one in self._active
        ]
        near = [one.losses[-1:] and one.losses[-1] <= NEAR * goal.target for one in self._active]
        if not (any(last) or any(near) or self._active[0].epochs % EVERY == 0):
            return
        self._look(goal)
        for one in self._active:
            one.reached = one.train_loss <= goal.target
        self._finish([place for place, one in enumerate(self._active) if one.reached or last[place]])

    def _look(self, goal: Goal) -> None:
        """Takes the exact train losses."""
        for place, (one, loss) in enumerate(zip(self._active, self._exact(), strict=True)):
            if goal.last:
                one.tensors = {}
            one.keep_better(loss, partial(self._tensors, place))

    def _tensors(self, place: int) -> Stacked:
        parameters = {name: value[place].clone() for name, value in self._stack.parameters.items()}
        return parameters | self._stack.buffers(place)

    def _finish(self, places: list[int]) -> None:
        if not places:
            return
        self._finished += [self._active[place] for place in places]
        rest = [place for place in range(len(self._active)) if place not in places]
        self._active = [self._active[place] for place in rest]
        self._orders = [self._orders[place] for place in rest]
        if rest:
            self._stack.keep(torch.tensor(rest))
            self._optimizer.keep(torch.tensor(rest))

    def _exact(self) -> list[float]:
        """The mean train loss of each network on its own samples."""
        if not self._active:
            return []
        loss, total = LOSS_OF_TASK[self._samples.task], torch.zeros(len(self._active), dtype=torch.float64)
        rows = torch.stack([one.lesson.rows for one in self._active])
        for part in blocks(rows.shape[1], 1, AT_ONCE):
            x, y = self._batch(rows[:, part])
            f = self._stack.scores(x).double()
            total += loss.value(f.flatten(0, 1), y.flatten(0, 1)).reshape(f.shape[:2]).sum(1)
        return (total / rows.shape[1]).tolist()


def _has_diverged(losses: list[float]) -> bool:
    if not losses:
        return False
    return not math.isfinite(losses[-1]) or losses[-1] > DIVERGED * losses[0]


def _is_stuck(losses: list[float], epochs: int) -> bool:
    """Whether the loss no longer falls: its least over the last epochs beside that over as many before them."""
    if len(losses) < 2 * epochs:
        return False
    return min(losses[-epochs:]) > (1 - STALE) * min(losses[-2 * epochs : -epochs])


def _generator(seed: int, use: str) -> torch.Generator:
    """Random numbers of one network for one use, unlike those of its start."""
    return torch.Generator().manual_seed(1_000_003 * (seed + 1) + sum(use.encode()))


# What a network starts from: parameters drawn anew.


DRAWN = (nn.Linear, *CONVOLUTIONS, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def unknown_layers(network: nn.Module) -> list[str]:
    """Modules with parameters whose start nobody can tell: a network that has some is not trained anew as a whole."""
    return [path for path, module in modules_with_weights(network).items() if not _is_known(module)]


def drawn_start(network: nn.Module, recipe: Recipe, seed: int) -> dict[str, Tensor]:
    """Parameters by name, as before training; the network itself stays as it is."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for path, module in modules_with_weights(network).items():
        start = _norm(module) if _is_norm(module) else _drawn(module, recipe, generator)
        found |= {f"{path}.{name}" if path else name: value for name, value in start.items()}
    return {name: found[name] for name, _ in network.named_parameters()}


def _is_norm(module: nn.Module) -> bool:
    """Also one that an ONNX file holds as an operator."""
    named = module.extra_repr() if not isinstance(module, (*DRAWN, nn.Embedding)) else ""
    return isinstance(module, NORMS) or named.endswith("_norm")


def _is_known(module: nn.Module) -> bool:
    return isinstance(module, (*DRAWN, nn.Embedding)) or _is_norm(module)


def _norm(module: nn.Module) -> dict[str, Tensor]:
    fill = {"weight": torch.ones_like, "bias": torch.zeros_like}
    return {name: fill[name](value.detach()) for name, value in module.named_parameters(recurse=False)}


def _drawn(module: nn.Module, recipe: Recipe, generator: torch.Generator) -> dict[str, Tensor]:
    """Weights times `start_factor`; biases as they come with the recipe's start."""
    weight = module.get_parameter("weight")
    if isinstance(module, nn.Embedding):
        return {"weight": recipe.start_factor * _normal(weight, 1.0, generator)}
    size = weight[0][0].numel() if weight.dim() > 2 else 1
    fan_in, fan_out = weight.shape[1] * size, weight.shape[0] * size
    if recipe.start == "he":
        values = _normal(weight, math.sqrt(2 / fan_in), generator)
    else:
        bound = math.sqrt(6 / (fan_in + fan_out)) if recipe.start == "glorot" else math.sqrt(1 / fan_in)
        values = _uniform(weight, bound, generator)
    found = {"weight": recipe.start_factor * values}
    if getattr(module, "bias", None) is not None:
        bound = math.sqrt(1 / fan_in) if recipe.start == "torch" else 0.0
        found["bias"] = _uniform(module.get_parameter("bias"), bound, generator)
    return found


def _uniform(like: Tensor, bound: float, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(like.shape, generator=generator, dtype=torch.float64) - 1).mul(bound).to(like.dtype)


def _normal(like: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).mul(deviation).to(like.dtype)
