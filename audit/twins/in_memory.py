"""Twins of a network and samples that a program holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from audit.errors import ModelError, UsageError
from audit.measures import Report
from audit.network.loss import LOSS_OF_TASK
from audit.run.in_memory import sources_of, undisturbed
from audit.run.pipeline import audit_sources
from audit.run.plan import budget_seconds
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe, TwinSet, cached
from audit.twins.answers import twins_for, with_twins
from audit.twins.engines import chosen_engine
from audit.twins.kinds import Kind, chosen_kinds
from audit.twins.make import Wish, make_folder
from audit.twins.outcomes import all_scores
from audit.twins.problem import set_problem
from audit.twins.recipes import recipe_of
from audit.twins.training import Architecture, Lesson, Samples, Trained
from audit.twins.work import Change, TrainWith, train


@dataclass(frozen=True)
class Asked:
    """What a program asks for."""

    recipe: Recipe | dict[str, Any] | None
    train_with: OwnTraining | None
    kinds: Sequence[str | Kind] | None
    count: int | None
    budget: str
    folder: Path | None
    engine: str

    def wish(self) -> Wish:
        """The same as of the command line."""
        if self.recipe is not None and self.train_with is not None:
            raise UsageError("make_twins: train_with has its own recipe; leave recipe out, or train_with.")
        recipe = recipe_of(self.recipe, "recipe") if isinstance(self.recipe, dict) else self.recipe
        names = None if self.kinds is None else [kind for kind in self.kinds if isinstance(kind, str)]
        return Wish(
            kinds=chosen_kinds(names, [kind for kind in self.kinds or () if isinstance(kind, Kind)]),
            count=self.count,
            recipe=recipe if self.train_with is None else Recipe(),
            budget=budget_seconds(self.budget),
            engine=chosen_engine(self.engine),
            train_with=train if self.train_with is None else trained_by(self.train_with),
        )


def twins_in_memory(model: Any, train: Any, test: Any, settings: Settings, asked: Asked) -> TwinSet:
    """Made, or found again."""
    wish = asked.wish()
    with undisturbed(), ExitStack() as stack:
        problem = set_problem(sources_of(model, train, test, stack), settings, Progress())
        if asked.folder is None and asked.train_with is not None:
            raise UsageError("make_twins: with train_with, name a folder; a function cannot be found again by content.")
        return make_folder(problem, asked.folder or cached(problem.about(wish.recipe)), wish)


def audit_beside_twins(
    given: tuple[Any, Any, Any], asked: tuple[str, str], settings: Settings, watching: Progress
) -> Report:
    """The report on a given model, train and test samples; asked for are the twins, and the call that it names."""
    twins, command = asked
    with undisturbed(), ExitStack() as stack:
        stack.callback(watching.close)
        sources = sources_of(*given, stack)
        made = twins_for(twins, sources, settings, lambda line: None)
        return with_twins(audit_sources(sources, settings, command, watching), *made).report


# Twins by the owner's own training function: the whole of a recipe that no file could say.


OwnTraining = Callable[[int, Tensor, Tensor, Change], nn.Module]
"""Called with a seed, train samples, their labels and the change; answers with a trained network.

`change.kind` is its name, `change.recipe` has what is changed of a recipe (`decay`, `start_factor`, …), and
`change.goal.target` is the train loss to stop at. Samples and labels of `half`, `quarter` and `wrong-labels` come
changed already.
"""


def trained_by(function: OwnTraining) -> TrainWith:
    """The owner's function in the place of ours, one lesson after the other."""

    def train(architecture: Architecture, samples: Samples, change: Change, lessons: list[Lesson]) -> list[Trained]:
        return [_trained(function, architecture, samples, change, lesson) for lesson in lessons]

    return train


def _trained(
    function: OwnTraining, architecture: Architecture, samples: Samples, change: Change, lesson: Lesson
) -> Trained:
    labels = samples.y if lesson.labels is None else lesson.labels
    x, y = samples.x[lesson.rows], labels[lesson.rows]
    with torch.enable_grad():
        module = function(lesson.seed, x.clone(), y.clone(), change)
    if not isinstance(module, nn.Module):
        raise UsageError(f"train_with: answered with a {type(module).__name__}; return the trained nn.Module.")
    state = {name: value.detach().cpu().float() for name, value in module.state_dict().items()}
    missing = [name for name, _ in architecture.network.named_parameters() if name not in state]
    if missing:
        raise ModelError(
            f"train_with: the network that it returned has no {missing[0]!r}; return the audited architecture."
        )
    kept = {name for name, _ in (*architecture.network.named_parameters(), *architecture.network.named_buffers())}
    found = Trained(lesson, {name: value for name, value in state.items() if name in kept})
    f = all_scores(architecture.network, found, x)
    found.train_loss = float(LOSS_OF_TASK[samples.task].value(f, y).mean())
    found.reached = found.train_loss <= change.goal.target
    return found
