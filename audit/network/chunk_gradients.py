"""Gradients of the parameters outside the dense layers, on one chunk of samples.

The backward passes that a record is made from run past most of those parameters anyway, and what they leave there goes
with the record. What they cannot see, or what is no longer kept, is found by running the samples again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.network.backward import Calls
from audit.network.closed_forms import ClosedForms, Gradients, SquareSums
from audit.network.parameter_gradients import SampleGradients

WORTHWHILE = 0.5  # share of a chunk's samples, below which they are run again by themselves


@dataclass(frozen=True)
class PassGradients:
    """What a pass leaves of the parameters that have closed forms."""

    squares: SquareSums
    gradients: Callable[[Tensor, Tensor], Gradients]
    """Samples `rows` of the chunk, ∂l/∂f [rows, C] → ∂l/∂θ [rows, *shape], by one more backward pass."""


class OtherParameters:
    """The parameters outside the dense layers of a network; how each is found is tried on the first samples seen."""

    def __init__(self, network: nn.Module, names: Sequence[str], fixed_batch: int | None) -> None:
        self._network, self._names, self._batch = network, names, fixed_batch
        self._found: SampleGradients | None = None

    def ways(self, x: Tensor) -> SampleGradients:
        """How the gradient of each is found."""
        if self._found is None:
            self._found = SampleGradients(self._network, self._names, x, self._batch)
        return self._found

    def closed(self, x: Tensor) -> ClosedForms | None:
        """Those whose gradients follow from what backward passes leave on their way."""
        closed = self.ways(x).closed if self._names else None
        return closed if closed is not None and closed.paths else None


@dataclass(frozen=True)
class ChunkGradients:
    """The gradients of those parameters on one chunk of samples."""

    others: OtherParameters
    x: Tensor  # the samples, as they are stored
    left: PassGradients | None  # by the pass that the record was made from; None: the samples are run again

    def squares(self) -> tuple[Tensor, Tensor]:
        """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of every sample i [n], float64."""
        return self.others.ways(self.x).squares(self.x, None if self.left is None else self.left.squares)

    def gradients(self, rows: Tensor, cotangent: Tensor) -> Gradients:
        """∂(cotangent_i · f_i)/∂θ for every sample i of `rows`; cotangent [rows, C] → for each name [rows, *shape]."""
        left = self.left if len(rows) >= WORTHWHILE * len(self.x) else None
        return self._formed(rows, cotangent, None if left is None else left.gradients(rows, cotangent))

    def loss_gradients(self, rows: Tensor, gradient: Tensor) -> Gradients:
        """The same for ∂l/∂f of the record's own loss, which the pass may have left."""
        if self.left is None or self.left.squares.combined is None:
            return self.gradients(rows, gradient)
        return self._formed(rows, gradient, {name: of[rows] for name, of in self.left.squares.combined.items()})

    def _formed(self, rows: Tensor, cotangent: Tensor, closed: Gradients | None) -> Gradients:
        return self.others.ways(self.x).gradients(self.x[rows.to(self.x.device)], cotangent, closed)


def left_by_pass(f: Tensor, calls: Calls, sums: SquareSums) -> PassGradients:
    """What a forward pass with scores f [n, C] leaves; n counts what only fills up a fixed batch, too."""

    def gradients(rows: Tensor, cotangent: Tensor) -> Gradients:
        full = torch.zeros_like(f)
        full[rows] = cotangent.to(f.dtype)
        signals = torch.autograd.grad(f, sums.answers, full, retain_graph=True, materialize_grads=True)
        return sums.forms.gradients(calls, signals, rows)

    return PassGradients(sums, gradients)
