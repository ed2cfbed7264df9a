"""K networks of one architecture as one: parameters stacked [K, …], samples in K batches, one pass for all.

A chain of dense layers (`DenseStack`) is run by batched matrix products with its backward pass written out; any other
network (`AnyStack`) as it is, under `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from audit.network.hooks import hooked, modules_with_weights, scores


@dataclass(frozen=True)
class Product:
    """The gradient of stacked weights as leftᵀ right, not multiplied out: δ [K, b, out] and x [K, b, in]."""

    left: Tensor
    right: Tensor

    def tensor(self) -> Tensor:
        """[K, out, in]."""
        return torch.bmm(self.left.mT, self.right)

    def added_to(self, target: Tensor, beta: float = 1.0, alpha: float = 1.0) -> None:
        """Puts β target + α leftᵀ right into the target, in one pass over it."""
        target.baddbmm_(self.left.mT, self.right, beta=beta, alpha=alpha)


Gradient = Product | Tensor
Stacked = dict[str, Tensor]


# The losses of training, for stacks of networks: values and gradients in the scores, in the network's precision.


LossAndGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Scores f [K, b, C] and labels [K, b] (targets [K, b, C]) to the loss of each sample [K, b] and ∂l/∂f [K, b, C]."""


def cross_entropy(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """−ln p_y, and p − 1_y."""
    log_p = f.log_softmax(-1)
    value = -log_p.gather(-1, y[..., None])
    gradient = log_p.exp().scatter_add_(-1, y[..., None], -torch.ones_like(value))
    return value[..., 0], gradient


def binary_cross_entropy(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """−ln p(y) of one score: ln(1 + e^{−s f}) and −s σ(−s f), s = ±1."""
    sign = (2 * y - 1).to(f.dtype)[..., None]
    return F.softplus(-sign * f)[..., 0], -sign * torch.sigmoid(-sign * f)


def squared_error(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """½ ‖f − y‖² and f − y."""
    residual = f - y
    return residual.square().sum(-1) / 2, residual


LOSSES: dict[str, LossAndGradient] = {
    "classification": cross_entropy,
    "binary": binary_cross_entropy,
    "regression": squared_error,
}


# The stacks: K networks at once.


TOLERANCE = 1e-4  # relative, within which a chain must answer as the network that it was read off


class Stack(Protocol):
    """K networks."""

    parameters: Stacked  # by name [K, …]

    def scores(self, x: Tensor) -> Tensor:
        """Of samples [K, b, …]: [K, b, C], as in use, not as in training."""

    def gradients(self, x: Tensor, y: Tensor, loss: LossAndGradient) -> tuple[Tensor, dict[str, Gradient]]:
        """The loss of each sample [K, b], and the gradients of each network's mean loss; samples [K, b, …]."""

    def keep(self, rows: Tensor) -> None:
        """Drops all networks but these."""

    def buffers(self, row: int) -> dict[str, Tensor]:
        """What one network has beside its parameters and changes in training, such as running means."""


@dataclass(frozen=True)
class Chain:
    """Dense layers one behind the other, each with the function behind it."""

    layers: tuple[str, ...]  # paths of the nn.Linear modules, first to last
    functions: tuple[nn.Sequential, ...]  # one behind each but the last
    biases: tuple[bool, ...]

    @cached_property
    def is_relu(self) -> tuple[bool, ...]:
        """Of each function, whether it is the one whose slope is known without asking."""
        return tuple(
            len(function) == 1 and (isinstance(function[0], nn.ReLU) or function[0].extra_repr() == "relu")
            for function in self.functions
        )


@torch.no_grad()
def chain_of(network: nn.Module, x: Tensor) -> Chain | None:
    """The network as a chain, where that is all that it is; checked on the samples x [n, …]."""
    order: list[str] = []
    linear = {path for path, module in modules_with_weights(network).items() if isinstance(module, nn.Linear)}
    leaves = [path for path, module in network.named_modules() if not any(True for _ in module.children())]

    def called(path: str) -> None:
        order.append(path)

    with hooked(network, {path: lambda *_, path=path: called(path) for path in leaves}):
        expected = scores(network, x)
    layers = [path for path in order if path in linear]
    if not layers or len(set(layers)) < len(layers) or set(modules_with_weights(network)) != set(layers):
        return None
    if order[-1] != layers[-1]:
        return None
    places = [order.index(path) for path in layers]
    between = [order[first + 1 : last] for first, last in pairwise(places)]
    functions = [nn.Sequential(*(network.get_submodule(path) for path in paths)) for paths in between]
    modules = [network.get_submodule(path) for path in layers]
    chain = Chain(tuple(layers), tuple(functions), tuple(module.bias is not None for module in modules))
    stack = DenseStack(chain, {name: value.detach()[None] for name, value in network.named_parameters()})
    try:
        found = stack.scores(x[None])[0]
    except RuntimeError:  # something between two layers does not take rows
        return None
    close = found.shape == expected.shape and torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    return chain if close else None


class DenseStack:
    """K chains of dense layers: z = x Wᵀ + b for all K at once, and δ ← (δ W) ∘ φ′(z) on the way back."""

    def __init__(self, chain: Chain, parameters: Stacked, dropout: float = 0.0) -> None:
        self.chain, self.parameters, self.dropout = chain, parameters, dropout

    def scores(self, x: Tensor) -> Tensor:
        """[K, b, C]; x [K, b, …]."""
        return self.walked(x)[0]

    def walked(self, x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The scores, and every layer's answer z [K, b, out] and input [K, b, in]."""
        inputs, answers = [x.flatten(2)], []
        for place, function in enumerate((*self.chain.functions, None)):
            answers.append(self._layer(place, inputs[place]))
            if function is not None:
                inputs.append(function(answers[place]))
        return answers[-1], answers, inputs

    def gradients(self, x: Tensor, y: Tensor, loss: LossAndGradient) -> tuple[Tensor, dict[str, Gradient]]:
        """Forward, then back: of a dense layer the gradient is δᵀ x, left as a product."""
        x = x.flatten(2)
        inputs, slopes = [x], []
        for place in range(len(self.chain.functions)):
            x, slope = self._through(place, self._layer(place, x))
            inputs.append(x)
            slopes.append(slope)
        values, delta = loss(self._layer(len(slopes), x), y)
        delta = delta / x.shape[1]
        found: dict[str, Gradient] = {}
        for place in reversed(range(len(inputs))):
            name = self.chain.layers[place]
            found[f"{name}.weight"] = Product(delta, inputs[place])
            if self.chain.biases[place]:
                found[f"{name}.bias"] = delta.sum(1)
            if place:
                delta = torch.bmm(delta, self.parameters[f"{name}.weight"]).mul_(slopes[place - 1])
        return values, found

    def keep(self, rows: Tensor) -> None:
        """Drops all networks but these."""
        for name, value in self.parameters.items():
            self.parameters[name] = value[rows].contiguous()

    def buffers(self, row: int) -> dict[str, Tensor]:
        """None: dense layers have nothing else."""
        return {}

    def _layer(self, place: int, x: Tensor) -> Tensor:
        name = self.chain.layers[place]
        weight = self.parameters[f"{name}.weight"].mT
        if not self.chain.biases[place]:
            return torch.bmm(x, weight)
        return torch.baddbmm(self.parameters[f"{name}.bias"][:, None], x, weight)

    def _through(self, place: int, z: Tensor) -> tuple[Tensor, Tensor]:
        """φ(z) and φ′(z), units left out included."""
        a, slope = _relu(z) if self.chain.is_relu[place] else _with_slope(self.chain.functions[place], z)
        if not self.dropout:
            return a, slope
        kept = torch.empty_like(a).bernoulli_(1 - self.dropout).div_(1 - self.dropout)
        return a * kept, slope * kept


def _relu(z: Tensor) -> tuple[Tensor, Tensor]:
    a = z.relu_()
    return a, (a > 0).to(a.dtype)


def _with_slope(function: nn.Module, z: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        z = z.detach().requires_grad_(True)
        a = function(z)
        (slope,) = torch.autograd.grad(a.sum(), z)
    return a.detach(), slope


class AnyStack:
    """K networks of any kind: the module itself under vmap, its normalisations in train mode while it is trained."""

    def __init__(self, network: nn.Module, parameters: Stacked) -> None:
        self.network, self.parameters = network, parameters
        K = len(next(iter(parameters.values())))
        self._norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        started = _before_training(network)
        self._buffers = {name: value.expand(K, *value.shape).clone() for name, value in started.items()}
        self._one_by_one = False  # where vmap does not know an operator

    def scores(self, x: Tensor) -> Tensor:
        """[K, b, C]; x [K, b, …]."""
        with torch.no_grad():
            return self._run(x, training=False)

    def gradients(self, x: Tensor, y: Tensor, loss: LossAndGradient) -> tuple[Tensor, dict[str, Gradient]]:
        """By one backward pass from ∂l/∂f."""
        for value in self.parameters.values():
            value.requires_grad_(True)
        with torch.enable_grad():
            f = self._run(x, training=True)
        values, delta = loss(f.detach(), y)
        found = torch.autograd.grad(f, list(self.parameters.values()), delta / x.shape[1])
        for value in self.parameters.values():
            value.requires_grad_(False)
        return values, dict(zip(self.parameters, found, strict=True))

    def keep(self, rows: Tensor) -> None:
        """Drops all networks but these."""
        for stacked in (self.parameters, self._buffers):
            for name, value in stacked.items():
                stacked[name] = value[rows].contiguous()

    def buffers(self, row: int) -> dict[str, Tensor]:
        """Running means and variances."""
        return {name: value[row].clone() for name, value in self._buffers.items()}

    def _run(self, x: Tensor, *, training: bool) -> Tensor:
        for norm in self._norms:
            norm.train(training)

        def one(parameters: Stacked, buffers: Stacked, x: Tensor) -> Tensor:
            return scores_of(self.network, {**parameters, **buffers}, x)

        if not self._one_by_one:
            try:
                f = vmap(one, randomness="different")(self.parameters, self._buffers, x)
                assert isinstance(f, Tensor)
                return f
            except RuntimeError:
                self._one_by_one = True
        each = [[{name: value[k] for name, value in part.items()} for k in range(len(x))] for part in self._parts()]
        return torch.stack([one(p, b, x[k]) for k, (p, b) in enumerate(zip(*each, strict=True))])

    def _parts(self) -> tuple[Stacked, Stacked]:
        return self.parameters, self._buffers


def _before_training(network: nn.Module) -> Stacked:
    """Buffers by name, running statistics as of a network that has seen nothing."""
    fresh = {"running_mean": torch.zeros_like, "running_var": torch.ones_like, "num_batches_tracked": torch.zeros_like}
    named = ((name, value, fresh.get(name.rpartition(".")[2])) for name, value in network.named_buffers())
    return {name: value if start is None else start(value) for name, value, start in named}


def scores_of(network: nn.Module, tensors: Stacked, x: Tensor) -> Tensor:
    """Scores [n, C] with these parameters and buffers in place of the network's own."""
    f: Tensor = functional_call(network, tensors, (x,))
    return f.reshape(len(x), -1)
