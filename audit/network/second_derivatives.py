"""The curvature that Gauss–Newton leaves out: R = Σ_c (∂l/∂f_c) ∂²f_c/∂z², by double backward.

With the weights g of the sum held fixed, a = Σ_c g_c ∂f_c/∂z is the gradient of g·f, and R V is the derivative of a·V.
Where the network after z is piecewise linear, a does not move with z and R = 0. Which case holds is seen on the samples
themselves, with a random V: first for all layers together, since most networks need no second look.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from audit.maths.decompositions import eigh
from audit.model.packing import Slot
from audit.network import DenseLayer
from audit.network.backward import Calls
from audit.network.record import LayerRecord

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Residuals:
    """V → R V for each layer that has one."""

    by_layer: Mapping[str, Product]
    kind: str  # "exact", or "gauss-newton" where the network could not be differentiated twice


NO_RESIDUALS = Residuals({}, "exact")


def find_residuals(layers: Sequence[DenseLayer], f: Tensor, gradient: Tensor, calls: Calls) -> Residuals:
    """R of each of the layers on this chunk, as products V → R V, where it is not zero.

    f [n, C] the scores with their graph, gradient [rows ≤ n, C] = ∂l/∂f, calls what the layers were given and answered.
    """
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
        found = zip(*vjps(arranged, zs, full), strict=True)
        products = [torch.cat([layer.arrange(part, n) for part in parts], 1)[:rows] for parts in found]
        return torch.stack(products).double().reshape(V.shape)

    return times


def _direction(shape: tuple[int, ...], like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(like.device, like.dtype)


def _any_nonzero(tensors: Sequence[Tensor | None]) -> bool:
    return any(tensor is not None and bool((tensor != 0).any()) for tensor in tensors)


# Several backward passes over one graph, side by side where the network's operators allow it.


def vjps(of: Tensor, targets: Sequence[Tensor], cotangents: Tensor) -> list[Tensor]:
    """Vector–Jacobian products: ∂(of·v)/∂target for each v of `cotangents` [k, *shape of `of`], [k, *shape] a target.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> vjps(x.square(), [x], torch.eye(2))
    [tensor([[2., 0.],
            [0., 4.]])]
    """
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


# Networks that are known to be piecewise linear from what they are made of: there is no curvature to be looked for.
# Only what is surely so counts: chains of known modules, and traced graphs of known modules and functions. All others
# are judged by what they do.


PIECEWISE_LINEAR = {
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Flatten, nn.Unflatten, nn.Identity, Slot),
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6, nn.Hardtanh),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
}
IDENTITIES = {nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d}  # … while nothing is trained
NORMS = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}  # … and with statistics of their own
FUNCTIONS = {
    *(torch.flatten, torch.relu, torch.cat, torch.reshape, torch.permute, torch.transpose, torch.squeeze),
    *(torch.add, operator.add, nn.functional.relu, nn.functional.max_pool2d, nn.functional.avg_pool2d),
}
METHODS = {"flatten", "view", "reshape", "permute", "transpose", "contiguous", "squeeze", "unsqueeze", "relu", "add"}


def is_piecewise_linear(network: nn.Module) -> bool:
    """Whether the scores are, for certain, piecewise linear in what enters any of the network's modules.

    >>> is_piecewise_linear(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), is_piecewise_linear(nn.Tanh())
    (True, False)
    """
    if type(network) is nn.Sequential:
        return all(is_piecewise_linear(module) for module in network)
    if isinstance(network, fx.GraphModule):
        return all(_is_linear_node(node, network) for node in network.graph.nodes)
    kind = type(network)
    if kind in IDENTITIES or kind in NORMS:
        return not network.training and (kind in IDENTITIES or network.running_mean is not None)
    return kind in PIECEWISE_LINEAR


def _is_linear_node(node: fx.Node, network: fx.GraphModule) -> bool:
    if node.op == "call_module":
        return is_piecewise_linear(network.get_submodule(str(node.target)))
    if node.op == "call_function":
        return node.target in FUNCTIONS
    if node.op == "call_method":
        return node.target in METHODS
    return node.op in ("placeholder", "output")


# R, what Gauss–Newton leaves out of the curvature behind a layer: how it is summed up where it is not formed.
# A product with R costs a second differentiation of everything behind the layer. Forms of R are exact, from one product
# for each unit of the layer's answer, while those are few; beyond that they are means over random directions with the
# form's weight as covariance: signs ε with E[ε εᵀ] = 1, drawn anew for every sample.


EXACT_UNITS = 128  # T·out up to which every unit has its product, however many samples there are
EXACT_PRODUCTS = 100_000  # … and above which it has, while all samples together need no more than this
MOST_PROBES = 16  # sign vectors of a sample
ENOUGH_PROBES = 4096  # … of all samples together, from which on two of each are enough


def is_probed(layer: LayerRecord, samples: int) -> bool:
    """Whether forms of R over `samples` are estimated."""
    return layer.residual_times is not None and not few_products(layer.z.shape[1] * layer.z.shape[2], samples)


def few_products(units: int, samples: int) -> bool:
    """Whether each of a layer's units may have its own product with R on each of `samples`."""
    return units <= EXACT_UNITS or units * samples <= EXACT_PRODUCTS


def probes(samples: int) -> int:
    """How many sign vectors a sample gets: the noise of a mean over samples counts all of them."""
    return max(2, min(MOST_PROBES, -(-ENOUGH_PROBES // samples)))


def residual_trace(layer: LayerRecord, samples: int, start: int, seed: int) -> Tensor:
    """Σ_tt′ (x_t·x_t′) tr R^{tt′}, what R adds to Tr H_W, of each sample [n]; `start`: the first one's position."""
    x = layer.x.double()
    if layer.residual_times is None:
        return x.new_zeros(len(x))
    if not is_probed(layer, samples):
        return _exact_trace(layer, x)
    root, (n, _, out) = gram_root(x), layer.z.shape
    streams = [seed * MOST_PROBES + probe for probe in range(probes(samples))]
    total = x.new_zeros(n)
    for stream in streams:
        v = root @ signs(start, (n, root.shape[2], out), stream, x)
        total += (v * layer.residual_times(v)).sum((1, 2))
    return total / len(streams)


def _exact_trace(layer: LayerRecord, x: Tensor) -> Tensor:
    total, K = x.new_zeros(len(x)), x @ x.mT
    for t, outputs, R_to in layer.residual_columns():
        own = R_to.gather(3, outputs[:, None, None, None].expand(-1, *R_to.shape[1:3], 1))[..., 0]  # [m, n, T]
        total += (own * K[:, t]).sum((0, 2))
    return total


def signs(start: int, shape: tuple[int, int, int], stream: int, like: Tensor) -> Tensor:
    """±1 [n, ...], a hash of the sample's place in the split, so that they do not depend on how samples are chunked."""
    each = shape[1] * shape[2]
    key = torch.arange(start * each, (start + shape[0]) * each, device=like.device)
    key = (key + (stream + 1) * 0x632BE59BD9B4E019 % (1 << 62)) * 0x1E3779B97F4A7C15  # int64 wraps around
    for multiplier in (0x3F58476D1CE4E5B9, 0x14D049BB133111EB):
        key = (key ^ (key >> 29)) * multiplier
    return (1 - 2 * ((key >> 40) & 1)).to(like.dtype).reshape(shape)


def gram_root(x: Tensor) -> Tensor:
    """L [n, T, r] with L Lᵀ = x xᵀ, for x [n, T, in], and r as small as is cheap.

    >>> gram_root(torch.tensor([[[3.0, 4.0]]]))
    tensor([[[5.]]])
    """
    if x.shape[2] < x.shape[1]:
        return x
    K = x @ x.mT
    if K.shape[1] == 1:
        return K.sqrt()
    values, vectors = eigh(K)
    root: Tensor = vectors * values.clamp(min=0).sqrt()[:, None, :]
    return root
