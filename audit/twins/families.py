"""Without a recipe: which of some ordinary trainings does the model look like?

Numbers depend on the optimizer as much as on faults, so one guessed recipe is no scale. A few plain twins are made in
each ordinary recipe, at a rate that a short test found stable, and the model's inner numbers are held beside theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from audit.twins.index import Recipe
from audit.twins.losses import LOSSES
from audit.twins.optimizers import optimizer_for
from audit.twins.training import Architecture, Samples

ORDINARY: dict[str, Recipe] = {
    "sgd-middle": Recipe(rate=0.1, batch=32),
    "momentum": Recipe(rate=0.01, batch=32, momentum=0.9),
    "adam": Recipe(optimizer="adam", rate=0.001, batch=64),
    "adamw": Recipe(optimizer="adamw", rate=0.001, batch=64, decay=0.01),
    "sgd-high": Recipe(rate=0.1, batch=10),
    "sgd-low": Recipe(rate=0.1, batch=128, epochs=1600),
}
"""SGD with rate ÷ batch middle, high and low; with momentum; Adam; AdamW with its usual decay."""

STARTS = ("glorot", "he")  # beside PyTorch's own, in which the ordinary recipes are tried

FACTORS = tuple(4.0**power for power in range(-5, 3))  # of a recipe's rate, that are tried
STEPS = 150
WORSE = 1.5  # times the best loss: from there on a rate counts as too small or too large
FLOOR = 0.02  # of the logarithm of a number: twins spread at least so much


def at_stable_rate(architecture: Architecture, samples: Samples, recipe: Recipe) -> Recipe:
    """The recipe at its own rate if that works, else at the nearest smaller one that does, else at the best one.

    All rates are tried at once, from one start, for a few steps.
    """
    stack = architecture.stacked(recipe, [0] * len(FACTORS))
    rates = recipe.rate * torch.tensor(FACTORS)
    optimizer = optimizer_for(recipe, stack.parameters, rates)
    order, last = torch.Generator().manual_seed(0), torch.zeros(len(FACTORS))
    with torch.no_grad():
        for step in range(STEPS):
            rows = torch.randint(len(samples.x), (recipe.batch,), generator=order)
            x, y = (part[rows].expand(len(FACTORS), *part[rows].shape) for part in (samples.x, samples.y))
            values, gradients = stack.gradients(x, y, LOSSES[samples.task])
            optimizer.step(gradients)
            last += values.mean(1) if step >= STEPS // 2 else 0
    found = [value if math.isfinite(value) else math.inf for value in last.tolist()]
    fine = [factor for factor, loss in zip(FACTORS, found, strict=True) if loss <= WORSE * min(found)]
    usual = [factor for factor in fine if factor <= 1]
    return replace(recipe, rate=recipe.rate * (max(usual) if usual else min(fine, default=1.0)))


def other_starts(name: str, recipe: Recipe) -> dict[str, Recipe]:
    """The recipe from the starts that it was not tried from.

    >>> list(other_starts("adam", Recipe(optimizer="adam")))
    ['adam-glorot', 'adam-he']
    """
    return {f"{name}-{start}": replace(recipe, start=start) for start in STARTS}  # type: ignore[arg-type]


def nearest_family(model: Mapping[str, float], families: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The family whose twins' inner numbers are nearest: logarithms, each number in units of its spread in families."""
    distances = _distances(model, families)
    return min(distances, key=lambda name: distances[name])


def _distances(model: Mapping[str, float], families: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    every = [numbers for twins in families.values() for numbers in twins]
    keys = [key for key in model if all(key in numbers for numbers in every)]
    points = {
        name: np.array([[_log(key, twin[key]) for key in keys] for twin in twins]) for name, twins in families.items()
    }
    within = np.sqrt(np.mean([each.var(0) for each in points.values()], 0) + FLOOR**2)
    own = np.array([_log(key, model[key]) for key in keys])
    return {name: float(np.square((own - each.mean(0)) / within).mean()) for name, each in points.items()}


def _log(key: str, value: float) -> float:
    """The logarithm of |value|, of what is none yet; shares may be 0 or below."""
    return value if "log_volume" in key else math.log(max(abs(value), 1e-12))
