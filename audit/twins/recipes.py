"""Recipes: given in a file, or the family among ordinary ones that the model looks like."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from audit.errors import UsageError, unreadable
from audit.report.fields import adapter_of
from audit.twins import Recipe
from audit.twins.optimizers import optimizer_for
from audit.twins.stack import LOSSES
from audit.twins.training import Architecture, Samples

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A recipe in a file: how the owner trained the model.


LONGEST = 10_000  # letters of a file: its parser's memory grows with the square of a key's parts
NAMES = [each.name for each in fields(Recipe)]


def read_recipe(path: Path) -> Recipe:
    """The recipe of a TOML file, its values at the top or under [recipe]."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() or not path.exists() else ""
        if len(text) > LONGEST or (not text and path.exists()):  # or a pipe, which would be waited for
            raise UsageError(f"{path}: is empty, no file, or longer than any recipe; name a recipe as TOML.")
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({unreadable(error)}); name a recipe as TOML.") from error
    except (ValueError, RecursionError) as error:  # no TOML, a number of thousands of digits, nested too deep
        raise UsageError(f"{path}: is no TOML ({str(error).rstrip('.')}); write lines such as rate = 0.1.") from error
    recipe = values.get("recipe", values)
    if not isinstance(recipe, dict):
        raise UsageError(f"{path}: recipe is {recipe!r}, not a table; write [recipe].")
    return recipe_of(recipe, str(path))


def recipe_of(values: dict[str, Any], where: str) -> Recipe:
    """The recipe with these values; those that are not given are the usual ones."""
    for name in values:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.0)[0]
            raise UsageError(f"{where}: a recipe has no {name!r}; the nearest one is {near!r}.")
    try:
        recipe: Recipe = adapter_of(Recipe).validate_python(values)
    except ValueError as error:
        first = error.errors()[0]  # type: ignore[attr-defined]
        raise UsageError(f"{where}: {first['loc'][0]} is {first['input']!r}; {first['msg'].lower()}.") from error
    if (fault := recipe.fault) is not None:
        raise UsageError(f"{where}: {fault}.")
    return recipe


# Without a recipe: which of some ordinary trainings does the model look like?
#
# Numbers depend on the optimizer as much as on faults, so one guessed recipe is no scale. A few plain twins are made in
# each ordinary recipe, at a rate that a short test found stable, and the model's inner numbers are held beside theirs.


ORDINARY: dict[str, Recipe] = {
    "sgd-middle": Recipe(rate=0.1, batch=32),
    "momentum": Recipe(rate=0.01, batch=32, momentum=0.9),
    "adam": Recipe(optimizer="adam", rate=0.001, batch=64),
    "adamw": Recipe(optimizer="adamw", rate=0.001, batch=64, decay=0.01),
    "sgd-high": Recipe(rate=0.1, batch=10),
    "sgd-low": Recipe(rate=0.1, batch=128, epochs=1600),
}
"""SGD with rate ÷ batch middle, high and low; with momentum; Adam; AdamW with its usual decay."""

LEAST_STEPS = 12_000  # that an ordinary recipe may take: networks on few samples need about as many as on many

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


def long_enough(recipe: Recipe, samples: int) -> Recipe:
    """The recipe with so many epochs that few train samples, too, are gone round in enough steps.

    >>> long_enough(Recipe(batch=32), 4000).epochs, long_enough(Recipe(batch=32), 150).epochs
    (400, 2400)
    """
    return replace(recipe, epochs=max(recipe.epochs, math.ceil(LEAST_STEPS / math.ceil(samples / recipe.batch))))


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
