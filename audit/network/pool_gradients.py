"""Gram matrices of the loss gradients of a pool of samples, over all parameters, within bounded memory.

A dense layer with one vector per sample needs no gradient formed: (δ_i·δ_j)(x_i·x_j + 1). All other parameters have
theirs formed by plain autograd, sample by sample, in single precision; as many parameters at a time as the pool's
gradients of them fit into the room, their inner products summed up in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.network.capture import Capture
from audit.network.hooks import scores
from audit.network.layers import DenseLayer
from audit.network.parameter_gradients import closed_parameters
from audit.network.random_signs import differentiable

REST = ""  # the name of everything outside the dense layers
SHORT = 1 << 14  # numbers of a gradient whose products are summed up in single precision


@dataclass(frozen=True)
class Pool:
    """Samples, and what their scores are pulled by: ∂l/∂f."""

    x: Tensor  # [N, …]
    y: Tensor
    cotangent: Tensor  # [N, C], float64


def pool_grams(capture: Capture, pool: Pool, room: int) -> dict[str, Tensor]:
    """[N, N] by dense layer, and for all other parameters under `REST`; `room` bytes for formed gradients."""
    layers = [layer for layer in capture.layers if layer.tokens == 1 and layer.patches is None and layer.calls == 1]
    grams = _by_factors(capture, layers, pool)
    owner = _owners(capture)
    factored = {name for layer in layers for name, _ in _own(capture.network, layer)}
    for names in _slices(capture.network, factored, len(pool.x), room):
        for name, G in _formed(capture, pool, names):
            place = owner.get(name, REST)
            found = _gram(G)
            grams[place] = grams[place] + found if place in grams else found
    return grams


def _owners(capture: Capture) -> dict[str, str]:
    """By parameter name, the dense layer that alone holds it."""
    return {name: layer.name for layer in capture.layers for name, _ in _own(capture.network, layer)}


def _own(network: nn.Module, layer: DenseLayer) -> Iterator[tuple[str, nn.Parameter]]:
    weight, bias = closed_parameters(network, layer)
    for short, alone in (("weight", weight), ("bias", bias)):
        name = f"{layer.module}.{short}".lstrip(".")
        if alone:
            yield name, network.get_parameter(name)


def _by_factors(capture: Capture, layers: Sequence[DenseLayer], pool: Pool) -> dict[str, Tensor]:
    if not layers:
        return {}
    given: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
    signals: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
    for batch in capture.batches(pool.x, pool.y):
        rows, n = batch.rows, len(batch.x)
        with torch.enable_grad():
            passed = capture.run(batch.x)
        cotangent = torch.zeros_like(passed.f)
        cotangent[:rows] = pool.cotangent[batch.start : batch.start + rows].to(passed.f)
        zs = [passed.calls[layer.name][0][1] for layer in layers]
        for layer, delta in zip(
            layers, torch.autograd.grad(passed.f, zs, cotangent, materialize_grads=True), strict=True
        ):
            signals[layer.name].append(layer.arrange(delta, n)[:rows, 0].double())
            given[layer.name].append(layer.arrange_input(passed.calls[layer.name][0][0], n)[:rows, 0].double())
    grams = {}
    for layer in layers:
        x, delta = torch.cat(given[layer.name]), torch.cat(signals[layer.name])
        weight, bias = closed_parameters(capture.network, layer)
        grams[layer.name] = (delta @ delta.T) * ((x @ x.T if weight else 0.0) + float(bias))
    return grams


def _slices(network: nn.Module, without: set[str], count: int, room: int) -> Iterator[list[str]]:
    """Names of parameters, as many at a time as fit; one alone where it does not."""
    some: list[str] = []
    size = 0
    for name, value in network.named_parameters():
        if name in without:
            continue
        needed = count * value.numel() * value.element_size()
        if some and size + needed > room:
            yield some
            some, size = [], 0
        some.append(name)
        size += needed
    if some:
        yield some


def _formed(capture: Capture, pool: Pool, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """Name and gradients [N, size] of some parameters."""
    network = capture.network
    with differentiable(network) as parameters:
        values = [parameters[name] for name in names]
        kept = [value.new_empty(len(pool.x), value.numel()) for value in values]
        for i in range(len(pool.x)):
            one = next(capture.batches(pool.x[i : i + 1], pool.y[i : i + 1], 1))
            f = scores(network, one.x)
            cotangent = torch.zeros_like(f)
            cotangent[0] = pool.cotangent[i].to(f)
            found = torch.autograd.grad(f, values, cotangent, allow_unused=True, materialize_grads=True)
            for row, gradient in zip(kept, found, strict=True):
                row[i] = gradient.flatten()
    yield from zip(names, kept, strict=True)


def _gram(G: Tensor) -> Tensor:
    """G Gᵀ [N, N], float64; G [N, P] in single or double precision."""
    total = torch.zeros(len(G), len(G), dtype=torch.float64, device=G.device)
    for part in torch.split(G, SHORT, 1):
        total += part @ part.T
    return total
