"""One backward pass for each score: its derivatives in everything that a forward pass met on its way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from audit.maths.blocks import blocks
from audit.network.layers import DenseLayer

Calls = dict[str, list[tuple[Tensor, Tensor]]]  # by layer name: input and output of each call


@dataclass(frozen=True)
class Passed:
    """A forward pass that can be gone back over."""

    f: Tensor  # [n, C]
    calls: Calls
    entries: dict[str, list[Tensor]]  # by layer name: the inputs of its calls, as the layer alone has them
    leaf: Tensor | None  # the network's input, where its derivative is wanted
    others: Calls  # by path: the calls of layers that are not dense, where their signals are wanted


@dataclass(frozen=True)
class Jacobians:
    """∂f/∂ of what was met, each [C, *raw shape]."""

    by_layer: dict[str, list[Tensor]]  # in z, per call
    by_entry: dict[str, list[Tensor]]  # in x, per call, as far as it goes through the layer
    by_input: Tensor | None


class Listener(Protocol):
    """Somebody who takes the signals at some answers while the backward passes run, so that nobody has to keep them."""

    @property
    def answers(self) -> list[Tensor]:
        """Where the signals are wanted."""

    @property
    def together(self) -> int:
        """How many scores are best taken in at once."""

    def add(self, scores: Sequence[Sequence[Tensor]]) -> None:
        """Takes in some scores; of each, its signal at every answer."""


def keeping(calls: Calls, name: str) -> Callable[..., Tensor]:
    """A forward hook that keeps input and answer of each call, the answer as something that gradients reach."""

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not z.requires_grad:
            z = z.detach().requires_grad_()
        calls[name].append((inputs[0].detach(), z))
        return z.clone()  # what follows must not overwrite z

    return hook


def jacobians(
    passed: Passed, layers: Sequence[DenseLayer], side_by_side: bool, listener: Listener | None = None
) -> Jacobians:
    """All derivatives in one sweep, since every backward pass meets all of them."""
    answers = {layer.name: [z for _, z in passed.calls[layer.name]] for layer in layers}
    groups = [*answers.values(), *passed.entries.values(), [] if passed.leaf is None else [passed.leaf]]
    targets = [target for group in groups for target in group]
    found = iter(_backward_all(passed.f, targets, side_by_side, listener))
    by_layer = {name: [next(found) for _ in zs] for name, zs in answers.items()}
    by_entry = {name: [next(found) for _ in xs] for name, xs in passed.entries.items()}
    return Jacobians(by_layer, by_entry, next(found, None))


def _backward_all(f: Tensor, targets: list[Tensor], side_by_side: bool, listener: Listener | None) -> list[Tensor]:
    """∂f/∂target as [C, *shape] for each target: all scores side by side where possible, or one after the other."""
    heard = [] if listener is None else listener.answers
    together = _side_by_side(f, [*targets, *heard]) if side_by_side else None
    if together is None:
        return one_by_one(f, targets, listener)
    if listener is not None:
        listener.add(list(zip(*together[len(targets) :], strict=True)))
    return together[: len(targets)]


def _side_by_side(f: Tensor, targets: list[Tensor]) -> list[Tensor] | None:
    """None where some operator does not allow it."""
    units = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)[:, None, :].expand(-1, *f.shape)
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an operator without a batching rule is slow here, not wrong
        found = torch.autograd.grad(f, targets, units, retain_graph=True, is_grads_batched=True, allow_unused=True)
        nothing = torch.zeros((), dtype=f.dtype, device=f.device)
        return [
            nothing.expand(len(units), *target.shape) if part is None else part
            for part, target in zip(found, targets, strict=True)
        ]
    return None


def one_by_one(f: Tensor, targets: list[Tensor], listener: Listener | None) -> list[Tensor]:
    """∂f/∂target as [C, *shape] for each target, one score after the other."""
    heard, together = ([], f.shape[1]) if listener is None else (listener.answers, listener.together)
    rows = []
    totals = f.sum(0)  # samples do not mix
    for some in blocks(len(totals), 1, together):
        found = [
            torch.autograd.grad(total, [*targets, *heard], retain_graph=True, materialize_grads=True)
            for total in totals[some]
        ]
        rows += [row[: len(targets)] for row in found]
        if listener is not None:
            listener.add([row[len(targets) :] for row in found])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def by_sample(layer: DenseLayer, J: Tensor, n: int, features: int) -> Tensor:
    """∂f/∂z or ∂f/∂x of one call, [C, *raw shape] → [n, C, T, features]."""
    if layer.batch_axis == 0 and layer.feature_axis == -1:
        return J.reshape(len(J), n, -1, features).transpose(0, 1).contiguous()
    return torch.stack([layer.arrange(row, n) for row in J], 1)
