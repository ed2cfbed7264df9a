"""What Gauss–Newton leaves out of the Hessian of every dense layer's weights, in size: its trace, on a few samples.

With g = ∂l/∂f held fixed, M = Σ_c g_c ∂²f_c/∂W² is zero where the network behind a layer is piecewise linear. For a
vector v of random signs over the weights of all layers at once, v_l·(M v)_l has the mean Tr M_ll: products between two
layers cancel. So one double backward pass over a batch gives one draw for every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    network: nn.Module, layers: Sequence[DenseLayer], loss: Loss, batches: Sequence[Batch], draw: Draw
) -> ResidualTraces:
    """`draw.repeats` double backward passes over each batch; behind which layers M is not zero, the first one shows."""
    names = [layer.name for layer in layers]
    draws = {name: Draws(draw.population) for name in names}
    generator = torch.Generator().manual_seed(draw.seed)
    with _leaves(network, layers) as weights:
        passes = Passes(network, weights, loss, generator)
        try:
            curved = frozenset(name for name, bends in zip(names, passes.curved(batches[0]), strict=True) if bends)
            for batch in batches if curved else ():
                found = torch.stack([passes.draw(batch) for _ in range(draw.repeats)])  # [R, L]
                for place, name in enumerate(names):
                    draws[name].add(found[:, place], batch.rows)
        except RuntimeError:  # "derivative for … is not implemented": a fused kernel in the network
            return ResidualTraces({}, frozenset(names), known=False)
    return ResidualTraces({name: draws[name].estimate() for name in curved}, curved)


@contextmanager
def _leaves(network: nn.Module, layers: Sequence[DenseLayer]) -> Iterator[list[nn.Parameter]]:
    """The layers' weights, with gradients for a while."""
    weights = [network.get_parameter(f"{layer.module}.weight".lstrip(".")) for layer in layers]
    before = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        yield weights
    finally:
        for weight, needed in zip(weights, before, strict=True):
            weight.requires_grad_(needed)


@dataclass(frozen=True)
class Passes:
    """Double backward passes with random signs over the weights."""

    network: nn.Module
    weights: Sequence[Tensor]
    loss: Loss
    generator: torch.Generator

    def draw(self, batch: Batch) -> Tensor:
        """v_l·(M v)_l summed over the batch, for every layer [L], float64."""
        slopes, signs = self._slopes(batch)
        along = torch.stack([(slope * v).sum() for slope, v in zip(slopes, signs, strict=True)]).sum()
        second = self._derivative(along)
        return torch.stack([(part.double() * v.double()).sum() for part, v in zip(second, signs, strict=True)])

    def curved(self, batch: Batch) -> list[bool]:
        """Whether M_ll v_l is anything but zero, layer by layer."""
        slopes, signs = self._slopes(batch)
        found = []
        for weight, slope, v in zip(self.weights, slopes, signs, strict=True):
            along = (slope * v).sum()
            second = (
                []
                if not along.requires_grad
                else torch.autograd.grad(along, [weight], retain_graph=True, allow_unused=True)
            )
            found.append(any(part is not None and bool((part != 0).any()) for part in second))
        return found

    def _slopes(self, batch: Batch) -> tuple[Sequence[Tensor], list[Tensor]]:
        """∂(g·f)/∂W with its graph, and signs like it, for every layer."""
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            f = scores(self.network, batch.x)
            g = torch.zeros_like(f)
            g[: batch.rows] = self.loss.gradient(f.detach().double()[: batch.rows], batch.y[: batch.rows]).to(f)
            slopes = torch.autograd.grad(f, self.weights, g, create_graph=True, materialize_grads=True)
        return slopes, [torch.randint(2, w.shape, generator=self.generator).to(w) * 2 - 1 for w in self.weights]

    def _derivative(self, along: Tensor) -> Sequence[Tensor]:
        if not along.requires_grad:
            return [torch.zeros_like(weight) for weight in self.weights]
        return torch.autograd.grad(along, self.weights, materialize_grads=True)
