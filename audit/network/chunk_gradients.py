"""Gradients of the parameters outside the dense layers, on one chunk of samples.

The backward passes that a record is made from run past most of those parameters anyway: what they leave there is handed
over with the record. What they cannot see, or what was let go of since, is found by running the samples again.
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
class Handed:
    """What a pass leaves of the parameters that have closed forms."""

    squares: SquareSums
    gradients: Callable[[Tensor, Tensor], Gradients]
    """Samples `rows` of the chunk, ∂l/∂f [rows, C] → ∂l/∂θ [rows, *shape], by one more backward pass."""


class Others:
    """The parameters outside the dense layers of a network; how to reach each is tried on the first samples seen."""

    def __init__(self, network: nn.Module, names: Sequence[str], fixed_batch: int | None) -> None:
        self._network, self._names, self._batch = network, names, fixed_batch
        self._found: SampleGradients | None = None

    def ways(self, x: Tensor) -> SampleGradients:
        """How each is reached."""
        if self._found is None:
            self._found = SampleGradients(self._network, self._names, x, self._batch)
        return self._found

    def closed(self, x: Tensor) -> ClosedForms | None:
        """Those that backward passes may hand over."""
        closed = self.ways(x).closed if self._names else None
        return closed if closed is not None and closed.paths else None


class ChunkGradients:
    """The gradients on the samples x, as they are stored."""

    def __init__(self, others: Others, x: Tensor, handed: Handed | None) -> None:
        self._others, self._x, self._handed = others, x, handed

    def squares(self) -> tuple[Tensor, Tensor]:
        """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of every sample i [n], float64."""
        return self._others.ways(self._x).squares(self._x, None if self._handed is None else self._handed.squares)

    def gradients(self, rows: Tensor, cotangent: Tensor) -> Gradients:
        """∂(cotangent_i · f_i)/∂θ for every sample i of `rows`; cotangent [rows, C] → for each name [rows, *shape]."""
        handed = self._handed if len(rows) >= WORTHWHILE * len(self._x) else None
        closed = None if handed is None else handed.gradients(rows, cotangent)
        return self._others.ways(self._x).gradients(self._x[rows.to(self._x.device)], cotangent, closed)

    def loss_gradients(self, rows: Tensor, gradient: Tensor) -> Gradients:
        """The same for ∂l/∂f of the record's own loss, which may be at hand."""
        if self._handed is None or self._handed.squares.combined is None:
            return self.gradients(rows, gradient)
        closed = {name: values[rows] for name, values in self._handed.squares.combined.items()}
        return self._others.ways(self._x).gradients(self._x[rows.to(self._x.device)], gradient, closed)

    def release(self) -> None:
        """Lets go of the pass."""
        self._handed = None


def handed_over(f: Tensor, calls: Calls, sums: SquareSums) -> Handed:
    """Of a forward pass with scores f [n, C]; n counts what only fills up a fixed batch, too."""

    def gradients(rows: Tensor, cotangent: Tensor) -> Gradients:
        full = torch.zeros_like(f)
        full[rows] = cotangent.to(f.dtype)
        signals = torch.autograd.grad(f, sums.answers, full, retain_graph=True, materialize_grads=True)
        return sums.forms.gradients(calls, signals, rows)

    return Handed(sums, gradients)
