"""Optimizers and regularizers on stacked parameters [K, …]: one step moves K networks, each at its own rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

from audit.network.loss import LOSS_OF_TASK
from audit.twins import Recipe
from audit.twins.stack import LOSSES, DenseStack, Gradient, LossAndGradient, Product, Stack, Stacked

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam, as everywhere


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


# Regularizers: the gradients of a step, changed as `audit.train` would change one network's.
#
# Jia & Su's: ∇[L + β R] = (1 + β) ∇L(B) − β/M Σ_i ∇L(B_i, w − α g_i). The parts of a batch become networks of their
# own, K·M in one stack, each moved along its own gradient.


ALPHA, PARTS = 1e-4, 8

Adjust = Callable[[Stack, Tensor, Tensor, dict[str, Gradient]], dict[str, Gradient]]
"""What a regularizer does to the gradients of a step, given samples [K, b, …] and labels."""


def adjustment(recipe: Recipe, task: str) -> Adjust | None:
    """The recipe's regularizer; None where it has none."""
    if recipe.fisher:
        return lambda stack, x, y, gradients: _fisher(_dense(stack), (x, y), gradients, recipe.fisher, LOSSES[task])
    if recipe.flat:
        return lambda stack, x, y, gradients: _flat(_dense(stack), (x, y), gradients, recipe.flat, task)
    return None


def _dense(stack: Stack) -> DenseStack:
    assert isinstance(stack, DenseStack)  # other networks are refused before
    return stack


def _fisher(
    stack: DenseStack, batch: tuple[Tensor, Tensor], gradients: dict[str, Gradient], beta: float, loss: LossAndGradient
) -> dict[str, Gradient]:
    """Algorithm 1, in as many equal parts as a batch can be split into, 8 at most."""
    K, b = batch[0].shape[:2]
    M = max(parts for parts in range(1, PARTS + 1) if b % parts == 0)
    x, y = (part.reshape(K * M, b // M, *part.shape[2:]) for part in batch)
    moved = DenseStack(stack.chain, {name: w.repeat_interleave(M, 0) for name, w in stack.parameters.items()})
    for name, g in moved.gradients(x, y, loss)[1].items():
        if isinstance(g, Product):
            g.added_to(moved.parameters[name], alpha=-ALPHA)
        else:
            moved.parameters[name].sub_(g, alpha=ALPHA)
    after = moved.gradients(x, y, loss)[1]
    return {name: _combined(g, after[name], (1 + beta, -beta / M), K) for name, g in gradients.items()}


def _combined(plain: Gradient, after: Gradient, factors: tuple[float, float], K: int) -> Gradient:
    """factors₀ · plain [K, …] + factors₁ · Σ_i after [K·M, …]; products stay products, of more samples."""
    if isinstance(plain, Product) and isinstance(after, Product):
        left, right = (part.reshape(K, -1, part.shape[2]) for part in (after.left, after.right))
        lefts = torch.cat([factors[0] * plain.left, factors[1] * left], 1)
        return Product(lefts, torch.cat([plain.right, right], 1))
    assert isinstance(plain, Tensor) and isinstance(after, Tensor)
    return factors[0] * plain + factors[1] * after.reshape(K, -1, *after.shape[1:]).sum(1)


def _flat(
    stack: DenseStack, batch: tuple[Tensor, Tensor], gradients: dict[str, Gradient], share: float, task: str
) -> dict[str, Gradient]:
    """∇[L + c κ_τ] with c so that the penalty is a share of the loss: κ_τ has no scale of its own.

    κ_τ of all layers but the last, whose inputs only scale; by random signs, as in `audit.train`.
    """
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_(True) for name, value in stack.parameters.items()}
        f, answers, inputs = DenseStack(stack.chain, leaves).walked(batch[0])
        kappa = _kappa_tau(f, answers, inputs, [leaves[f"{name}.weight"] for name in stack.chain.layers[:-1]], task)
        found = torch.autograd.grad(kappa.sum(), list(leaves.values()), allow_unused=True)
    loss = LOSSES[task](f.detach(), batch[1])[0].mean(1)
    wanted = share * loss / kappa.detach().clamp(min=1e-30)  # [K]
    most = _lengths(map(_dense_gradient, gradients.values())) / _lengths(found).clamp(min=1e-30)
    scale = torch.minimum(
        wanted, most
    )  # by chance of the signs κ_τ can be tiny: its gradient is no larger than that of the loss
    return {
        name: plain if extra is None else _dense_gradient(plain) + scale.reshape(-1, *[1] * (extra.dim() - 1)) * extra
        for (name, plain), extra in zip(gradients.items(), _in_order(gradients, leaves, found), strict=True)
    }


def _kappa_tau(f: Tensor, z: list[Tensor], x: list[Tensor], W: list[Tensor], task: str) -> Tensor:
    """Σ_l ‖W_l‖² mean ‖x‖² ‖Jᵀ Lᵀ s‖² of each network [K]."""
    rows = f.flatten(0, 1)
    signs = torch.randint(2, rows.shape).to(f.dtype) * 2 - 1
    u = LOSS_OF_TASK[task].curvature_root_transposed_times(rows, rows[:, 0], signs).reshape(f.shape)
    backs = torch.autograd.grad(f, z[:-1], u, create_graph=True)
    traces = [(a.square().sum(2) * g.square().sum(2)).mean(1) for a, g in zip(x, backs, strict=False)]
    return torch.stack([w.square().sum((1, 2)) * trace for w, trace in zip(W, traces, strict=True)]).sum(0)


def _lengths(gradients: Iterable[Tensor | None]) -> Tensor:
    """The length of each network's gradient, all its parameters together [K]."""
    return torch.stack([g.square().flatten(1).sum(1) for g in gradients if g is not None]).sum(0).sqrt()


def _dense_gradient(gradient: Gradient) -> Tensor:
    return gradient.tensor() if isinstance(gradient, Product) else gradient


def _in_order(
    gradients: dict[str, Gradient], leaves: dict[str, Tensor], found: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    by_name = dict(zip(leaves, found, strict=True))
    return [by_name[name] for name in gradients]


# When a training is given up.


STUCK = 40  # epochs in which the loss must fall …
PATIENT, PART = 1000, 10  # … or so many steps, or so large a part of all epochs, where these are more


def patience(recipe: Recipe, samples: int) -> int:
    """Epochs after which a loss that does not fall is given up.

    An epoch of few batches brings a network no way, and a kind that is given many epochs needs them: from an oversized
    start the loss rests for long before it falls on.

    >>> patience(Recipe(), 4000), patience(Recipe(batch=256), 571), patience(Recipe(epochs=1200), 4000)
    (40, 333, 120)
    """
    return max(STUCK, PATIENT // math.ceil(samples / recipe.batch), recipe.epochs // PART)
