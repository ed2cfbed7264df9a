"""Regularizers on stacks of dense chains: the gradients of a step, changed as `audit.train` would change one network's.

Jia & Su's: ∇[L + β R] = (1 + β) ∇L(B) − β/M Σ_i ∇L(B_i, w − α g_i). The parts of a batch become networks of their own,
K·M in one stack, each moved along its own gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from audit.network.loss import LOSS_OF_TASK
from audit.twins.index import Recipe
from audit.twins.optimizers import Gradient, Product
from audit.twins.stack import LOSSES, DenseStack, LossAndGradient, Stack

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
    scale = torch.minimum(wanted, most)  # by chance of the signs κ_τ can be tiny: it pulls no harder than the loss
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
