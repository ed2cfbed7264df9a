"""Optimizers on stacked parameters [K, …]: one step moves K networks, each at its own rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from audit.twins.index import Recipe

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam, as everywhere


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


class Optimizer(Protocol):
    """Moves the parameters that it was made with."""

    rates: Tensor  # [K]

    def step(self, gradients: dict[str, Gradient]) -> None:
        """One step, in place."""

    def keep(self, rows: Tensor) -> None:
        """Forgets all networks but these; the parameters are cut by their owner."""

    def forget(self, row: int) -> None:
        """What it remembers of one network that begins anew."""


def optimizer_for(recipe: Recipe, parameters: Stacked, rates: Tensor) -> Optimizer:
    """The recipe's."""
    return SGD(recipe, parameters, rates) if recipe.optimizer == "sgd" else Adam(recipe, parameters, rates)


class SGD:
    """Gradient descent, with momentum as PyTorch has it: v ← μ v + g, w ← w − η v."""

    def __init__(self, recipe: Recipe, parameters: Stacked, rates: Tensor) -> None:
        self.rates, self._recipe, self._parameters = rates, recipe, parameters
        self._velocity = {name: torch.zeros_like(p) for name, p in parameters.items()} if recipe.momentum else {}

    def step(self, gradients: dict[str, Gradient]) -> None:
        """One step, in place."""
        for name, gradient in gradients.items():
            w, rates = self._parameters[name], _beside(self.rates, self._parameters[name])
            if self._recipe.momentum:
                self._with_momentum(name, w, rates, gradient)
                continue
            if self._recipe.decay:
                w.mul_(1 - self._recipe.decay * rates)
            if isinstance(gradient, Product):
                Product(gradient.left * self.rates[:, None, None], gradient.right).added_to(w, alpha=-1.0)
            else:
                w.addcmul_(gradient, rates, value=-1.0)

    def _with_momentum(self, name: str, w: Tensor, rates: Tensor, gradient: Gradient) -> None:
        v, momentum = self._velocity[name], self._recipe.momentum
        if isinstance(gradient, Product):
            gradient.added_to(v, beta=momentum)
        else:
            v.mul_(momentum).add_(gradient)
        if self._recipe.decay:
            v.add_(w, alpha=self._recipe.decay)
        w.addcmul_(v, rates, value=-1.0)

    def keep(self, rows: Tensor) -> None:
        """Forgets all networks but these."""
        self.rates = self.rates[rows]
        _cut(self._velocity, rows)

    def forget(self, row: int) -> None:
        """The velocity of one network."""
        for v in self._velocity.values():
            v[row] = 0


class Adam:
    """Adam; with `adamw` the decay acts on the weights themselves, not through the gradient."""

    def __init__(self, recipe: Recipe, parameters: Stacked, rates: Tensor) -> None:
        self.rates, self._recipe, self._parameters = rates, recipe, parameters
        self._mean = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self._square = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self._steps = torch.zeros_like(rates)  # [K]

    def step(self, gradients: dict[str, Gradient]) -> None:
        """One step, in place."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in BETAS)
        for name, given in gradients.items():
            w, g = self._parameters[name], given.tensor() if isinstance(given, Product) else given
            rates, decay = _beside(self.rates, w), self._recipe.decay
            if decay and self._recipe.optimizer == "adamw":
                w.mul_(1 - decay * rates)
            elif decay:
                g = g.add(w, alpha=decay)
            mean, square = self._mean[name], self._square[name]
            mean.lerp_(g, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
            size = square.sqrt().div_(_beside(second, w).sqrt()).add_(EPSILON)
            w.addcdiv_(mean * (rates / _beside(first, w)), size, value=-1.0)

    def keep(self, rows: Tensor) -> None:
        """Forgets all networks but these."""
        self.rates, self._steps = self.rates[rows], self._steps[rows]
        _cut(self._mean, rows)
        _cut(self._square, rows)

    def forget(self, row: int) -> None:
        """The moments of one network."""
        self._steps[row] = 0
        for moments in (self._mean, self._square):
            for values in moments.values():
                values[row] = 0


def _beside(values: Tensor, w: Tensor) -> Tensor:
    """[K] in the shape that meets [K, …]."""
    return values.reshape(-1, *[1] * (w.dim() - 1))


def _cut(stacked: Stacked, rows: Tensor) -> None:
    for name, value in stacked.items():
        stacked[name] = value[rows].contiguous()
