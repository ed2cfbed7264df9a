"""Networks of one setting, trained at once by the stacked training of `audit/twins`, down to one train loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from audit.twins import Recipe
from audit.twins.training import Architecture, Goal, Lesson, Samples, Stack, Trained, Training

TARGET = 5e-4  # the train loss at which Feng & Tu stop on MNIST
DECAYED = 40  # epochs of weight decay before it is taken away; the paper has 200
MOST_EPOCHS = 4000


@dataclass(frozen=True)
class Setting:
    """How the networks of one point of the study are trained; the defaults are the base."""

    rate: float = 0.1  # α
    batch: int = 25  # B
    decay: float = 0.0  # β, of a penalty β ‖w‖²
    start: float = 1.0  # s, times Glorot's (Xavier's) uniform range
    dropout: float = 0.0  # d
    part: float = 1.0  # of the train samples, the same of each class
    wrong: float = 0.0  # ρ, share of the train labels moved to another class
    fisher: float = 0.0  # weight of Jia & Su's regularizer, at work when the loss is near its target

    @property
    def recipe(self) -> Recipe:
        """As the training of twins takes it."""
        return Recipe(
            rate=self.rate,
            batch=self.batch,
            start="glorot",
            start_factor=self.start,
            dropout=self.dropout,
            fisher=self.fisher,
            epochs=MOST_EPOCHS,
        )


@dataclass(frozen=True)
class Begun(Architecture):
    """An architecture whose networks go on from where they are, instead of being drawn."""

    tensors: dict[str, Tensor]

    def stacked(self, recipe: Recipe, seeds: list[int]) -> Stack:
        """K networks as they are."""
        stack = super().stacked(recipe, seeds)
        stack.parameters = {name: self.tensors[name].clone() for name in stack.parameters}
        return stack


def teach(
    architecture: Architecture, samples: Samples, setting: Setting, seeds: Sequence[int], target: float = TARGET
) -> list[Trained]:
    """One network for each seed. Weight decay comes first and is then taken away, as in the paper.

    With it on, a network would settle at a train loss of its own.
    """
    lessons = [lesson(samples, setting, seed) for seed in seeds]
    if setting.decay:
        decayed = replace(setting.recipe, decay=2 * setting.decay, epochs=DECAYED)
        begun = Training(architecture, samples, decayed, lessons).run(Goal(0.0))
        tensors = {name: torch.stack([one.tensors[name] for one in begun]) for name in begun[0].tensors}
        architecture = Begun(architecture.network, architecture.chain, tensors)
    return Training(architecture, samples, setting.recipe, lessons).run(Goal(target))


def lesson(samples: Samples, setting: Setting, seed: int) -> Lesson:
    """Rows and labels of one network; which rows and which wrong labels is drawn anew for each seed."""
    draw = torch.Generator().manual_seed(seed)
    classes = range(int(samples.y.max()) + 1)
    of_each = [(samples.y == c).nonzero()[:, 0] for c in classes]
    kept = [rows[torch.randperm(len(rows), generator=draw)[: round(setting.part * len(rows))]] for rows in of_each]
    rows = torch.cat(kept).sort().values
    if not setting.wrong:
        return Lesson(seed, rows)
    labels = samples.y.clone()
    moved = rows[torch.randperm(len(rows), generator=draw)[: round(setting.wrong * len(rows))]]
    labels[moved] = (labels[moved] + torch.randint(1, len(classes), moved.shape, generator=draw)) % len(classes)
    return Lesson(seed, rows, labels)
