"""What Gauss–Newton leaves out of the Hessian of every dense layer's weights, in size: its trace, on a few samples.

With g = ∂l/∂f held fixed, M = Σ_c g_c ∂²f_c/∂W² is zero where the network behind a layer is piecewise linear. For a
vector v of random signs over the weights of all layers at once, v_l·(M v)_l has the mean Tr M_ll: products between two
layers cancel. So one double backward pass over a batch gives one draw for every layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.network.capture import Batch
from audit.network.hooks import scores
from audit.network.layers import DenseLayer
from audit.network.loss import Loss
from audit.network.random_signs import Draw, Draws, Estimate


@dataclass(frozen=True)
class ResidualTraces:
    """By layer name."""

    traces: dict[str, Estimate]  # mean over samples of Tr M
    curved: frozenset[str]  # layers behind which M is not zero on some sample
    known: bool = True  # False where the network could not be differentiated twice


def residual_traces(
    network: nn.Module, layers: Sequence[DenseLayer], loss: Loss, batches: Iterable[Batch], draw: Draw
) -> ResidualTraces:
    """`draw.repeats` double backward passes over each batch."""
    draws = {layer.name: Draws(draw.population) for layer in layers}
    curved: set[str] = set()
    generator = torch.Generator().manual_seed(draw.seed)
    weights = [network.get_submodule(layer.module).weight for layer in layers]
    try:
        for batch in batches:
            found = [_draw(network, weights, loss, batch, generator) for _ in range(draw.repeats)]
            for place, layer in enumerate(layers):
                products = torch.stack([each[place] for each in found])
                draws[layer.name].add(products, batch.rows)
                curved |= {layer.name} if bool((products != 0).any()) else set()
    except RuntimeError:  # "derivative for … is not implemented": a fused kernel in the network
        return ResidualTraces({}, frozenset(layer.name for layer in layers), known=False)
    return ResidualTraces({name: each.estimate() for name, each in draws.items()}, frozenset(curved))


def _draw(
    network: nn.Module, weights: Sequence[Tensor | nn.Module], loss: Loss, batch: Batch, generator: torch.Generator
) -> Tensor:
    """v_l·(M v)_l summed over the batch, for every layer [L], float64."""
    leaves = [weight for weight in weights if isinstance(weight, Tensor)]
    before = [weight.requires_grad for weight in leaves]
    try:
        for weight in leaves:
            weight.requires_grad_(True)
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            f = scores(network, batch.x)
            g = torch.zeros_like(f)
            g[: batch.rows] = loss.gradient(f.detach().double()[: batch.rows], batch.y[: batch.rows]).to(f)
            slopes = torch.autograd.grad(f, leaves, g, create_graph=True, materialize_grads=True)
            signs = [torch.randint(2, w.shape, generator=generator).to(w) * 2 - 1 for w in leaves]
            along = sum((slope * v).sum() for slope, v in zip(slopes, signs, strict=True))
            if not isinstance(along, Tensor) or not along.requires_grad:
                return torch.zeros(len(leaves), dtype=torch.float64)
            second = torch.autograd.grad(along, leaves, materialize_grads=True)
    finally:
        for weight, needed in zip(leaves, before, strict=True):
            weight.requires_grad_(needed)
    return torch.stack([(part.double() * v.double()).sum() for part, v in zip(second, signs, strict=True)])
