"""The curvature that Gauss–Newton leaves out: R = Σ_c (∂l/∂f_c) ∂²f_c/∂z², by double backward.

With the weights g of the sum held fixed, a = Σ_c g_c ∂f_c/∂z is the gradient of g·f, and R V is the derivative of a·V.
Where the network after z is piecewise linear, a does not move with z and R = 0. Which case holds is seen on the samples
themselves, with a random V: first for all layers together, since most networks need no second look.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.network.backward import Calls
from audit.network.layers import DenseLayer

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Residuals:
    """V → R V for each layer that has one."""

    by_layer: Mapping[str, Product]
    kind: str  # "exact", or "gauss-newton" where the network could not be differentiated twice


NO_RESIDUALS = Residuals({}, "exact")


def find_residuals(layers: Sequence[DenseLayer], f: Tensor, gradient: Tensor, calls: Calls) -> Residuals:
    """R of every layer on this chunk. f [n, C] with its graph; gradient [rows ≤ n, C]."""
    g = torch.zeros_like(f)
    g[: len(gradient)] = gradient.to(f.dtype)
    zs = [z for layer in layers for _, z in calls[layer.name]]
    slopes = torch.autograd.grad((f * g).sum(), zs, create_graph=True, materialize_grads=True)
    moving = [part for part in slopes if part.requires_grad]
    probes = [_direction(tuple(part.shape), part) for part in moving]
    try:
        second = torch.autograd.grad(moving, zs, probes, retain_graph=True, allow_unused=True) if moving else ()
        if not _any_nonzero(second):
            return NO_RESIDUALS
    except RuntimeError:  # "derivative for … is not implemented": a fused kernel in the network
        return Residuals({}, "gauss-newton")
    parts = iter(slopes)
    by_layer = {layer.name: [next(parts) for _ in calls[layer.name]] for layer in layers}
    products = {
        layer.name: _product(layer, by_layer[layer.name], [z for _, z in calls[layer.name]], len(f), len(gradient))
        for layer in layers
    }
    shapes = {layer.name: (len(gradient), layer.tokens, layer.out_features) for layer in layers}
    return Residuals(
        {name: times for name, times in products.items() if _any_nonzero([times(_direction(shapes[name], f))])}, "exact"
    )


def _product(layer: DenseLayer, a: list[Tensor], zs: list[Tensor], n: int, rows: int) -> Product:
    """V […, rows, T, out] → R V in float64; the samples behind `rows` only fill up a fixed batch."""
    arranged = torch.cat([layer.arrange(part, n) for part in a], 1)

    def times(V: Tensor) -> Tensor:
        if not arranged.requires_grad:
            return torch.zeros_like(V, dtype=torch.float64)
        each = V.reshape(-1, *V.shape[-3:])
        full = torch.zeros(len(each), n, *V.shape[-2:], dtype=arranged.dtype, device=arranged.device)
        full[:, :rows] = each
        found = zip(*pulled(arranged, zs, full), strict=True)
        products = [torch.cat([layer.arrange(part, n) for part in parts], 1)[:rows] for parts in found]
        return torch.stack(products).double().reshape(V.shape)

    return times


def _direction(shape: tuple[int, ...], like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(like.device, like.dtype)


def _any_nonzero(tensors: Sequence[Tensor | None]) -> bool:
    return any(tensor is not None and bool((tensor != 0).any()) for tensor in tensors)


# Several backward passes over one graph, side by side where the network's operators allow it.


def pulled(of: Tensor, targets: Sequence[Tensor], cotangents: Tensor) -> list[Tensor]:
    """∂(of·v)/∂target for each v of `cotangents` [k, …]: [k, *shape] for each target."""
    k = len(cotangents)
    if k > 1:
        with suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an operator without a batching rule is slow here, not wrong
            found = torch.autograd.grad(
                of, targets, cotangents, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            return [t.new_zeros(k, *t.shape) if g is None else g for g, t in zip(found, targets, strict=True)]
    each = [torch.autograd.grad(of, targets, v, retain_graph=True, materialize_grads=True) for v in cotangents]
    return [torch.stack(column) for column in zip(*each, strict=True)]
