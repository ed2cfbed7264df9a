"""One temperature on the scores that brings the mean train loss to a wanted value: what makes curvatures comparable.

Multiplying all scores by a factor changes no answer. The mean cross-entropy L(factor) is convex, L(0) = ln C is that of
guessing and L(1) the model's own, so for every wanted loss between them exactly one factor in (0, 1) gives it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from audit.errors import ModelError
from audit.measures.contract import Audit
from audit.model.base import Model

HALVINGS = 60


class Tempered(nn.Module):
    """A network whose scores are multiplied by a factor."""

    def __init__(self, network: nn.Module, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: Tensor) -> Tensor:
        """The scores times the factor."""
        scores: Tensor = self.network(x)
        return self.factor * scores


def at_train_loss(audit: Audit, wanted: float) -> Model:
    """The audited model with the factor that brings its mean train loss to `wanted`; its layers keep their names."""
    factor = find_factor(audit, wanted)
    note = f"The scores were multiplied by {factor:.6g}, so that the mean train loss is {wanted:.6g}."
    return tempered(audit.model, factor, note)


def tempered(model: Model, factor: float, *notes: str) -> Model:
    """The model with its scores multiplied by a factor; its layers keep their names."""
    paths = [path for path, _ in model.network.named_modules()]
    names = {_moved(path): model.names.get(path, path) or "(top level)" for path in paths}
    ops = {_moved(path): op for path, op in model.ops.items()}
    network = Tempered(model.network, factor).eval()
    every = (*model.notes, *notes)
    return replace(model, network=network, names=names, ops=ops, notes=every, factor=model.factor * factor)


def find_factor(audit: Audit, wanted: float) -> float:
    """The factor in (0, 1], by halving."""
    f = torch.from_numpy(audit.train_outcome.scores)
    y = torch.from_numpy(audit.train_outcome.labels)

    def loss(factor: float) -> float:
        return float(audit.loss.value(factor * f, y).mean())

    if not loss(1.0) <= wanted < loss(0.0):
        raise ModelError(
            f"{audit.model.path.name}: no softening of its scores brings its train loss of {loss(1.0):.3g} to "
            f"{wanted:.3g}; that of guessing is {loss(0.0):.3g}."
        )
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) > wanted else (low, middle)
    return high


def _moved(path: str) -> str:
    return f"network.{path}" if path else "network"
