"""One backward pass for each score: its derivatives in everything that a forward pass met on its way."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.layers import DenseLayer

Calls = dict[str, list[tuple[Tensor, Tensor]]]  # by layer name: input and output of each call


@dataclass(frozen=True)
class Passed:
    """A forward pass that can be gone back over."""

    f: Tensor  # [n, C]
    calls: Calls
    entries: dict[str, list[Tensor]]  # by layer name: the inputs of its calls, as the layer alone has them
    leaf: Tensor | None  # the network's input, where its derivative is wanted


@dataclass(frozen=True)
class Jacobians:
    """∂f/∂ of what was met, each [C, *raw shape]."""

    by_layer: dict[str, list[Tensor]]  # in z, per call
    by_entry: dict[str, list[Tensor]]  # in x, per call, as far as it goes through the layer
    by_input: Tensor | None


def jacobians(passed: Passed, layers: Sequence[DenseLayer], side_by_side: bool) -> Jacobians:
    """All derivatives in one sweep, since every backward pass meets all of them."""
    answers = {layer.name: [z for _, z in passed.calls[layer.name]] for layer in layers}
    groups = [*answers.values(), *passed.entries.values(), [] if passed.leaf is None else [passed.leaf]]
    found = iter(_backward_all(passed.f, [target for group in groups for target in group], side_by_side))
    by_layer = {name: [next(found) for _ in zs] for name, zs in answers.items()}
    by_entry = {name: [next(found) for _ in xs] for name, xs in passed.entries.items()}
    return Jacobians(by_layer, by_entry, next(found, None))


def _backward_all(f: Tensor, targets: list[Tensor], side_by_side: bool) -> list[Tensor]:
    """∂f/∂target as [C, *shape] for each target: all scores side by side where possible, or one after the other."""
    if side_by_side:
        units = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)[:, None, :].expand(-1, *f.shape)
        with suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an operator without a batching rule is slow here, not wrong
            return list(torch.autograd.grad(f, targets, units, retain_graph=True, is_grads_batched=True))
    sums = f.sum(0)  # samples do not mix
    rows = [torch.autograd.grad(total, targets, retain_graph=True, materialize_grads=True) for total in sums]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def by_sample(layer: DenseLayer, J: Tensor, n: int, features: int) -> Tensor:
    """∂f/∂z or ∂f/∂x of one call, [C, *raw shape] → [n, C, T, features]."""
    if layer.batch_axis == 0 and layer.feature_axis == -1:
        return J.reshape(len(J), n, -1, features).transpose(0, 1).contiguous()
    return torch.stack([layer.arrange(row, n) for row in J], 1)
