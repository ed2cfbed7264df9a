"""Small changes of the input (random noise, the worst direction by one gradient step) and of the weights.

A change u [n, d] counts in units of the spread s [d] of each of the d numbers, so that x′ = x + s ∘ u. Noise of size ε:
u = ε ξ, ξ standard normal. The worst change of that size, to first order and in the Euclidean norm: u = ε √d g/‖g‖ with
g = ∂l/∂u, which moves each number by ε spreads on root mean square, as the noise does.
Token ids have no small changes; there the same is done to what their embedding answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from audit.maths.blocks import row_blocks
from audit.maths.decompositions import norm
from audit.measures.consequences.block import Kind
from audit.measures.consequences.samples import Answers, Samples, input_spread
from audit.measures.contract import Audit
from audit.network import DenseLayer
from audit.network.hooks import Replay, hooked, modules_with_weights, scores

NO_PLACE = (
    "the inputs are token ids or masks, which have no small changes, and no embedding of them was found whose answer "
    "could be changed instead"
)
LOOK_UPS = ("embedding", "gather")  # what files call an embedding
FEW = 16  # samples that show what an embedding answers


class Place(Protocol):
    """Where changes are put in."""

    @property
    def name(self) -> str:
        """What is changed."""

    @property
    def spread(self) -> Tensor:
        """Of each number [d]; 0 where it is none that can be changed a little."""

    def scores(self, samples: Samples, rows: slice, u: Tensor) -> Tensor:
        """Scores [rows, C] with the change u [rows, d], in units of the spread."""


@dataclass(frozen=True)
class Input:
    """The model's own input."""

    spread: Tensor
    name: str = "the input"

    def scores(self, samples: Samples, rows: slice, u: Tensor) -> Tensor:
        """Adds s ∘ u to the samples."""
        x = samples.fed(samples.x[rows])
        change = (_filled(u, len(x)) * self.spread).to(x.device)
        return scores(samples.network, x + change.reshape(x.shape).to(x.dtype))[: len(u)]


@dataclass(frozen=True)
class Embedded:
    """What an embedding answers, where the input is token ids."""

    spread: Tensor
    path: str
    name: str

    def scores(self, samples: Samples, rows: slice, u: Tensor) -> Tensor:
        """Adds s ∘ u to the embedding's answer."""
        x = samples.fed(samples.x[rows])
        change = (_filled(u, len(x)) * self.spread).to(x.device)

        def add(_module: nn.Module, _inputs: tuple[Tensor, ...], answer: Tensor) -> Tensor:
            return answer + change.reshape(answer.shape).to(answer.dtype)

        with hooked(samples.network, {self.path: add}):
            return scores(samples.network, x)[: len(u)]


def _filled(u: Tensor, rows: int) -> Tensor:
    """A fixed batch is filled up with unchanged repeats."""
    return u if len(u) == rows else torch.cat([u, u.new_zeros(rows - len(u), u.shape[1])])


def find_place(audit: Audit) -> Place | None:
    """The continuous numbers of the input, else the embedding of its tokens; None where there is neither."""
    x = audit.train.x
    if x.is_floating_point():
        spread = input_spread(audit)
        return Input(spread) if bool((spread > 0).any()) else None
    return _embedding(audit)


def _embedding(audit: Audit) -> Place | None:
    """The largest table whose answer has a row of numbers for each sample, and differs between samples."""
    few = Samples.of(audit, audit.train, FEW)
    tables = {
        path: module
        for path, module in modules_with_weights(audit.network).items()
        if isinstance(module, nn.Embedding) or audit.model.ops.get(path) in LOOK_UPS
    }
    for path in sorted(tables, key=lambda path: -sum(value.numel() for value in tables[path].parameters(False))):
        answer = _answer_of(few, path)
        if answer is not None:
            spread = (answer - answer.mean(0)).square().mean().sqrt()
            name = f"the answer of the embedding {audit.model.names.get(path, path)}"
            return Embedded(spread.expand(answer.shape[1]), path, name)
    return None


@torch.no_grad()
def _answer_of(few: Samples, path: str) -> Tensor | None:
    """[n, d] float64 of an embedding that is called once for all samples; None where it tells them not apart."""
    answers: list[Tensor] = []
    x = few.fed(few.x[: few.chunk])

    def keep(_module: nn.Module, _inputs: tuple[Tensor, ...], answer: Tensor) -> None:
        answers.append(answer)

    with hooked(few.network, {path: keep}):
        few.network(x)
    if len(answers) != 1 or answers[0].dim() < 2 or len(answers[0]) != len(x):
        return None
    rows = answers[0].flatten(1).double()
    return rows if bool((rows != rows[0]).any()) else None


def noisy(
    place: Place, samples: Samples, sizes: Sequence[float], draws: int, seed: Sequence[int]
) -> dict[float, list[Answers]]:
    """Answers to samples with noise of each size, for each draw; all sizes share the draws' directions ξ."""
    found: dict[float, list[Answers]] = {size: [] for size in sizes}
    for draw in range(draws):
        rng = np.random.default_rng([*seed, draw])  # drawn row by row, so that the chunk makes no difference
        parts: dict[float, list[Answers]] = {size: [] for size in sizes}
        for rows in samples.blocks():
            xi = torch.from_numpy(rng.standard_normal((rows.stop - rows.start, len(place.spread))))
            with torch.no_grad():
                for size in sizes:
                    parts[size].append(samples.answers(rows, place.scores(samples, rows, size * xi)))
        for size in sizes:
            found[size].append(Answers.joined(parts[size]))
    return found


def worst_step(place: Place, samples: Samples, size: float) -> Answers:
    """Answers to samples moved by u = ε √d g/‖g‖; one without a gradient stays where it is."""
    parts = []
    for rows in samples.blocks():
        y = samples.y[rows]
        u = torch.zeros(len(y), len(place.spread), dtype=torch.float64).requires_grad_()
        f = place.scores(samples, rows, u)
        slope = samples.loss.gradient(f.detach().double(), y.to(f.device)).to(f.dtype)
        (g,) = torch.autograd.grad(f, u, slope, allow_unused=True, materialize_grads=True)
        norm = g.norm(dim=1, keepdim=True)
        step = size * math.sqrt(int((place.spread > 0).sum())) * g / torch.where(norm > 0, norm, 1.0)
        with torch.no_grad():
            parts.append(samples.answers(rows, place.scores(samples, rows, step)))
    return Answers.joined(parts)


# Small changes of the weights. Rounding is symmetric, one step per tensor: Δ = max |w| / 127, w′ = Δ round(w/Δ);
# matrices and kernels, not biases and normalisations. Random changes of a layer have exactly the norm ε ‖W‖; those of
# neurons are δw_j = ε ξ_j w_j. Each is made to both sides, +δ and −δ, whose mean is free of the slope of the loss.


LEVELS = 127  # steps of a signed byte to either side of 0


@contextmanager
def changed(weights: Sequence[Tensor], changes: Sequence[Tensor], size: float = 1.0) -> Iterator[None]:
    """The weights moved for a while by `size` times the changes, and brought back to the last bit whatever happens."""
    before = [weight.clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight, change in zip(weights, changes, strict=True):
                for rows in row_blocks(weight):
                    weight[rows] += (size * change[rows]).to(weight.device, weight.dtype)
        yield
    finally:
        with torch.no_grad():
            for weight, kept in zip(weights, before, strict=True):
                weight.copy_(kept)


def rounding(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Every matrix or kernel of the network, and what rounding it to 8 bits adds to it."""
    every = (weight.detach() for weight in network.parameters() if weight.dim() > 1 and weight.is_floating_point())
    weights = {(weight.data_ptr(), weight.shape): weight for weight in every}.values()  # what is shared, once
    return list(weights), [_rounding(weight) for weight in weights]


def _rounding(weight: Tensor) -> Tensor:
    """What rounding adds, computed in double precision, a few rows at a time, and kept in the weight's own."""
    found, step = torch.empty_like(weight), max(float(weight.max()), -float(weight.min())) / LEVELS
    for rows in row_blocks(weight):
        precise = weight[rows].double()
        found[rows] = (precise / step).round() * step - precise if step > 0 else 0.0
    return found


def directions(weight: Tensor, pairs: int, seed: Sequence[int], by_neuron: bool) -> Iterator[Tensor]:
    """Changes of W [out, …] for ε = 1: of norm ‖W‖ in a random direction, or each row by a random share of itself."""
    size = norm(weight)
    for pair in range(pairs):
        rng = np.random.default_rng([*seed, pair])
        if by_neuron:
            shares = torch.from_numpy(rng.standard_normal(len(weight))).reshape(-1, *[1] * (weight.dim() - 1))
            yield shares.to(weight.dtype) * weight.detach().cpu()
            continue
        delta, drawn = torch.empty(weight.shape, dtype=weight.dtype), weight[:0].cpu().numpy().dtype.type
        for rows in row_blocks(delta):
            delta[rows] = torch.from_numpy(rng.standard_normal(tuple(delta[rows].shape), drawn))
        yield delta.mul_(size / norm(delta))


@dataclass(frozen=True)
class Moved:
    """A random change of one layer's weights."""

    layer: str
    kind: Kind
    size: float


def moved(
    samples: Samples, layers: Sequence[DenseLayer], sizes: Mapping[Kind, Sequence[float]], pairs: int, seed: int
) -> dict[Moved, list[Answers]]:
    """Answers with each layer changed by each size, for each draw; all sizes share the draws' directions.

    A few samples at a time run once, and then again from the changed layer on.
    """
    found = {
        Moved(layer.name, kind, size): [samples.unfilled() for _ in range(2 * pairs)]
        for layer in layers
        for kind, own in sizes.items()
        for size in own
    }
    for rows in samples.blocks():
        run = Replay(samples.network, samples.fed(samples.x[rows]))
        for place, layer in enumerate(layers):
            weight = samples.network.get_submodule(layer.module).weight
            assert isinstance(weight, Tensor)
            for kind in (kind for kind in sizes if sizes[kind]):
                by_neuron = kind == "neurons-noise"
                for pair, delta in enumerate(directions(weight, pairs, (seed, place, by_neuron), by_neuron)):
                    behind = Behind.of(samples, layer, run, delta.to(weight.device))
                    for size in sizes[kind]:
                        answers = found[Moved(layer.name, kind, size)]
                        for draw, step in ((2 * pair, size), (2 * pair + 1, -size)):
                            samples.fill(answers[draw], rows, behind.scores(step)[: rows.stop - rows.start])
    return found


@dataclass(frozen=True)
class Behind:
    """Scores with a layer's weights moved along a direction."""

    samples: Samples
    layer: DenseLayer
    run: Replay
    delta: Tensor  # [out, …]
    steps: Sequence[Tensor] | None  # what it adds to each answer, which is linear in the weights; None: they act twice

    @classmethod
    @torch.no_grad()
    def of(cls, samples: Samples, layer: DenseLayer, run: Replay, delta: Tensor) -> Behind:
        """One product with the direction serves all sizes, to both sides."""
        if layer.calls > 1 or layer.tied_with:
            return cls(samples, layer, run, delta, None)
        module = samples.network.get_submodule(layer.module)
        weights = {"weight": delta} | ({"bias": delta.new_zeros(len(delta))} if layer.bias else {})
        steps = [functional_call(module, weights, (x,)) for x, _ in run.calls[layer.module]]
        return cls(samples, layer, run, delta, steps)

    @torch.no_grad()
    def scores(self, size: float) -> Tensor:
        """Of all samples that were run, with W + size · δW."""
        network, module = self.samples.network, self.layer.module
        if self.steps is not None:
            calls = zip(self.run.calls[module], self.steps, strict=True)
            return self.run.again(module, [z + size * step for (_, z), step in calls])
        with changed([network.get_parameter(f"{module}.weight".lstrip("."))], [self.delta], size):
            return scores(network, self.run.x)
