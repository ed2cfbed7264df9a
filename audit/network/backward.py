"""One backward pass for each score: its derivatives in everything that a forward pass went through."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from audit.maths.blocks import HELD, blocks, row_blocks
from audit.network import DenseLayer

Calls = dict[str, list[tuple[Tensor, Tensor]]]  # by layer name: input and output of each call


@dataclass(frozen=True)
class ForwardPass:
    """A forward pass with its graph, for backward passes to go over."""

    f: Tensor  # [n, C]
    calls: Calls
    entries: dict[str, list[Tensor]]  # by layer name: the inputs of its calls, as the layer alone has them
    leaf: Tensor | None  # the network's input, where its derivative is wanted
    others: Calls  # by path: the calls of layers that are not dense, where their signals are wanted


@dataclass(frozen=True)
class Jacobians:
    """∂f/∂ of what the forward pass went through, each [C, *raw shape]."""

    by_layer: dict[str, list[Tensor]]  # in z, per call
    by_entry: dict[str, list[Tensor]]  # in x, per call, as far as it goes through the layer
    by_input: Tensor | None


class Observer(Protocol):
    """Takes the backward signals at some layers' outputs while the passes run, so that nobody has to keep them."""

    @property
    def answers(self) -> list[Tensor]:
        """Where the signals are wanted."""

    @property
    def together(self) -> int:
        """How many scores are best taken in at once."""

    def add(self, scores: Sequence[Sequence[Tensor]]) -> None:
        """Takes in some scores; of each, its signal at every answer."""


def keeping(calls: Calls, name: str) -> Callable[..., Tensor]:
    """A forward hook that keeps input and answer of each call, the answer as something that has a gradient."""

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not z.requires_grad:
            z = z.detach().requires_grad_()
        calls[name].append((inputs[0].detach(), z))
        return z.clone()  # what follows must not overwrite z

    return hook


def jacobians(
    forward: ForwardPass, layers: Sequence[DenseLayer], side_by_side: bool, observer: Observer | None = None
) -> Jacobians:
    """∂f/∂ of all layers' outputs, the inputs that `forward` has kept and the network's input, in one sweep.

    `side_by_side`: all scores at once, where the network's operators allow it. `observer` sees the signals go by.
    """
    answers = {layer.name: [z for _, z in forward.calls[layer.name]] for layer in layers}
    groups = [*answers.values(), *forward.entries.values(), [] if forward.leaf is None else [forward.leaf]]
    targets = [target for group in groups for target in group]
    found = iter(_backward_all(forward.f, targets, side_by_side, observer))
    by_layer = {name: [next(found) for _ in zs] for name, zs in answers.items()}
    by_entry = {name: [next(found) for _ in xs] for name, xs in forward.entries.items()}
    return Jacobians(by_layer, by_entry, next(found, None))


def _backward_all(f: Tensor, targets: list[Tensor], side_by_side: bool, observer: Observer | None) -> list[Tensor]:
    """∂f/∂target as [C, *shape] for each target: all scores side by side where possible, or one after the other."""
    observed = [] if observer is None else observer.answers
    together = _side_by_side(f, [*targets, *observed]) if side_by_side else None
    if together is None:
        return one_by_one(f, targets, observer)
    if observer is not None:
        observer.add(list(zip(*together[len(targets) :], strict=True)))
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


def one_by_one(f: Tensor, targets: list[Tensor], observer: Observer | None) -> list[Tensor]:
    """∂f/∂target as [C, *shape] for each target of scores f [n, C], one score after the other.

    A sample's scores must depend on its own part of a target alone: what is summed over samples is then told apart.
    """
    observed, together = ([], f.shape[1]) if observer is None else (observer.answers, observer.together)
    rows = []
    totals = f.sum(0)  # samples do not mix
    for some in blocks(len(totals), 1, together):
        found = [  # by their numbers: going over a tensor has each backward pass write zeros for all other scores
            torch.autograd.grad(totals[number], [*targets, *observed], retain_graph=True, materialize_grads=True)
            for number in range(some.start, some.stop)
        ]
        rows += [row[: len(targets)] for row in found]
        if observer is not None:
            observer.add([row[len(targets) :] for row in found])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def by_sample(layer: DenseLayer, J: Tensor, n: int, features: int) -> Tensor:
    """∂f/∂z or ∂f/∂x of one call, [C, *raw shape] → [n, C, T, features]."""
    if layer.batch_axis == 0 and layer.feature_axis == -1:
        return J.reshape(len(J), n, -1, features).transpose(0, 1).contiguous()
    return torch.stack([layer.arrange(row, n) for row in J], 1)


# Of a layer with one vector per sample the gradient in its weights is δ_i x_iᵀ, δ_i = ∂/∂z_i: whatever is asked of it
# is known from the two vectors, and no matrix as large as W is formed.


def is_plain(layer: DenseLayer) -> bool:
    """Whether its weights act on one vector of each sample, and in no other layer: else its gradient has more parts."""
    return layer.tokens == layer.calls == 1 and not layer.tied_with and layer.patches is None


@dataclass(frozen=True)
class Plain:
    """A layer z = W x + b with one vector per sample, on n samples."""

    layer: DenseLayer
    W: Tensor  # [out, in]
    x: Tensor  # [n, in], float64
    Wx: Tensor  # [n, out], float64
    z: Tensor  # as the network has it, for backward passes

    @classmethod
    def of(cls, layer: DenseLayer, network: nn.Module, calls: Calls, n: int) -> Plain:
        """From its one call."""
        ((x, z),) = calls[layer.name]
        bias = network.get_submodule(layer.module).bias
        Wx = layer.arrange(z.detach(), n)[:, 0].double()
        Wx = Wx - bias.detach().double() if isinstance(bias, Tensor) else Wx
        return cls(layer, layer.weight(network).detach(), layer.arrange_input(x, n)[:, 0].double(), Wx, z)

    def arranged(self, delta: Tensor) -> Tensor:
        """[n, out] of a gradient in z."""
        return self.layer.arrange(delta, len(self.x))[:, 0]

    @cached_property
    def size(self) -> Tensor:
        """‖x‖² [n]."""
        return self.x.square().sum(1)

    @cached_property
    def weighted(self) -> Tensor:
        """Σ_k W_jk² x_k² [n, out]."""
        x = self.x.square().to(self.W)
        return torch.cat([x @ self.W[rows].square().T for rows in row_blocks(self.W)], 1).double()

    def squares(self, delta: Tensor) -> Tensor:
        """Σ_i ‖δ_i x_iᵀ‖² and Σ_i ‖W ∘ δ_i x_iᵀ‖² [2]."""
        squared = delta.double().square()
        return torch.stack([squared.sum(1) @ self.size, (squared * self.weighted).sum()])

    def forms(self, delta: Tensor) -> Tensor:
        """Trace, relative flatness, sums of rows and columns, rows and columns, one after the other [4 + out + in]."""
        back = (delta @ self.W).double()  # Wᵀ δ
        rows = (delta.double() * self.Wx).square().sum(0)  # w_j · (δ_j x)
        columns = (back * self.x).square().sum(0)
        sizes = torch.stack([part.double().square().sum(1) @ self.size for part in (delta, back)])
        return torch.cat([sizes, rows.sum()[None], columns.sum()[None], rows, columns])


def square_of_product(delta: Tensor, x: Tensor) -> float:
    """‖Σ_i δ_i x_iᵀ‖², a few rows of the matrix at a time; squares are summed in double precision."""
    rows = blocks(delta.shape[1], x.shape[1], HELD)
    return sum(float((delta[:, some].T @ x).double().square().sum()) for some in rows)
