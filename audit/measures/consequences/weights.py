"""Small changes of the weights: rounded to 8 bits, moved at random, or neurons scaled at random.

Rounding is symmetric, one step per tensor: Δ = max |w| / 127, w′ = Δ round(w/Δ); matrices and kernels, not biases and
normalisations. Random changes of a layer have exactly the norm ε ‖W‖; those of neurons are δw_j = ε ξ_j w_j. Draws come
in pairs +δ and −δ, whose mean is free of the slope of the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from audit.measures.consequences.block import Kind
from audit.measures.consequences.samples import Answers, Samples
from audit.network.hooks import Replay, scores
from audit.network.layers import DenseLayer

LEVELS = 127  # steps of a signed byte to either side of 0


@contextmanager
def changed(weights: Sequence[Tensor], changes: Sequence[Tensor]) -> Iterator[None]:
    """The weights moved for a while, and brought back to the last bit whatever happens."""
    before = [weight.clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight, change in zip(weights, changes, strict=True):
                weight.add_(change.to(weight.device, weight.dtype))
        yield
    finally:
        with torch.no_grad():
            for weight, kept in zip(weights, before, strict=True):
                weight.copy_(kept)


def rounding(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Every weight matrix or kernel of the network, and what rounding it to 8 bits adds to it."""
    weights: list[Tensor] = [
        weight for weight in network.parameters() if weight.dim() > 1 and weight.is_floating_point()
    ]
    return weights, [rounded(weight.detach().double()) - weight.detach().double() for weight in weights]


def rounded(weight: Tensor) -> Tensor:
    """A tensor in 8 bits, symmetric around 0.

    >>> rounded(torch.tensor([[1.0, -0.5, 0.001]])).mul(127).tolist()
    [[127.0, -64.0, 0.0]]
    """
    step = weight.abs().max() / LEVELS
    return (weight / step).round() * step if step > 0 else weight


def directions(weight: Tensor, pairs: int, seed: Sequence[int], by_neuron: bool) -> Iterator[Tensor]:
    """Changes of W [out, …] for ε = 1: of norm ‖W‖ in a random direction, or each row by a random share of itself."""
    for pair in range(pairs):
        rng = np.random.default_rng([*seed, pair])
        if by_neuron:
            shares = torch.from_numpy(rng.standard_normal(len(weight))).reshape(-1, *[1] * (weight.dim() - 1))
            delta = shares * weight.detach().double().cpu()
        else:
            delta = torch.from_numpy(rng.standard_normal(tuple(weight.shape)))
            delta *= float(weight.double().norm()) / float(delta.norm())
        yield delta
        yield -delta


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
                for draw, delta in enumerate(directions(weight, pairs, (seed, place, by_neuron), by_neuron)):
                    for size in sizes[kind]:
                        with changed([weight], [size * delta]):
                            f = _behind(layer, run, samples, rows)
                        samples.fill(found[Moved(layer.name, kind, size)][draw], rows, f[: rows.stop - rows.start])
    return found


@torch.no_grad()
def _behind(layer: DenseLayer, run: Replay, samples: Samples, rows: slice) -> Tensor:
    """Scores with the layer's weights as they are now."""
    if layer.calls > 1 or layer.tied_with:  # its weights also act elsewhere
        return scores(samples.network, samples.fed(samples.x[rows]))
    module = samples.network.get_submodule(layer.module)
    return run.again(layer.module, [module(x) for x, _ in run.calls[layer.module]])


@torch.no_grad()
def everything(samples: Samples) -> Answers:
    """A whole run with the weights as they are now."""
    parts = []
    for rows in samples.blocks():
        f = scores(samples.network, samples.fed(samples.x[rows]))[: rows.stop - rows.start]
        parts.append(samples.answers(rows, f))
    return Answers.joined(parts)
