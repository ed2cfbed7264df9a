"""One task: some twins of one kind, trained at once, judged and measured. Tasks know nothing of each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audit.twins.index import Outcomes, Recipe, Twin, Unseen
from audit.twins.kinds import Kind
from audit.twins.measure import Measuring
from audit.twins.outcomes import Judged, judge
from audit.twins.problem import Problem
from audit.twins.training import Architecture, Goal, Lesson, Samples, Trained, Training


@dataclass(frozen=True)
class Change:
    """How the twins of a task are trained."""

    kind: str
    recipe: Recipe  # with the kind's change
    goal: Goal


TrainWith = Callable[[Architecture, Samples, Change, list[Lesson]], list[Trained]]
"""What trains: one network for each lesson, in their order."""


WEAKENED = 3  # times, at most, that a kind's change is made smaller


@dataclass(frozen=True)
class Task:
    """Twins to be made at once."""

    kind: Kind
    family: str
    recipe: Recipe  # of the family, without the kind's change
    seeds: tuple[int, ...]
    deadline: float = math.inf  # by time.monotonic


@dataclass(frozen=True)
class Made:
    """A twin, what it does sample by sample, and its parameters."""

    twin: Twin
    outcomes: Outcomes
    weights: dict[str, NDArray[np.generic]]


def train(architecture: Architecture, samples: Samples, change: Change, lessons: list[Lesson]) -> list[Trained]:
    """All lessons at once."""
    return Training(architecture, samples, change.recipe, lessons).run(change.goal)


def make(problem: Problem, measuring: Measuring, task: Task, train_with: TrainWith = train) -> list[Made]:
    """The twins of a task; those that a deadline interrupted are not among them."""
    kind = task.kind
    settles = kind.settles and problem.task != "regression" and train_with is train  # an owner's loop needs a target
    goal = Goal(0.0 if settles else problem.target * kind.target, task.deadline)
    change = Change(kind.name, kind.recipe(task.recipe), goal)
    lessons = [kind.lesson(problem.train, seed) for seed in task.seeds]
    for tries in range(1 + (WEAKENED if kind.weaker is not None else 0)):
        if tries and kind.weaker is not None:
            change = replace(change, recipe=kind.weaker(change.recipe))
        trained = train_with(problem.architecture, problem.train, change, lessons)
        judged = [(one, _judge(problem, one)) for one in trained]
        if 2 * sum(found.matched or one.interrupted for one, found in judged) >= len(trained):
            break
    return [_made(problem, measuring, task, change, *each) for each in judged if not each[0].interrupted]


def _judge(problem: Problem, trained: Trained) -> Judged:
    return judge(problem.architecture.network, trained, problem.train, problem.test, problem.target)


def _made(problem: Problem, measuring: Measuring, task: Task, change: Change, trained: Trained, judged: Judged) -> Made:
    numbers = {}
    if task.kind.measured and judged.matched and not problem.tail:
        model, data = problem.twin(trained, judged.temperature), problem.taught(trained.lesson)
        numbers = measuring.numbers(model, data, problem.task)
    twin = Twin(
        kind=task.kind.name,
        family=task.family,
        seed=trained.lesson.seed,
        whole=not problem.tail,
        train_samples=len(trained.lesson.rows),
        train_loss=trained.train_loss,
        temperature=judged.temperature,
        matched=judged.matched,
        restarts=trained.restarts,
        reached=trained.reached or (task.kind.settles and judged.matched),
        epochs=trained.epochs,
        train_error=judged.train_error,
        test_error=judged.test_error,
        test_loss=judged.test_loss,
        recipe=change.recipe,
        numbers=numbers,
    )
    return Made(twin, _stored(judged.outcomes, problem), _arrays(trained.tensors))


def _stored(outcomes: Outcomes, problem: Problem) -> Outcomes:
    """With samples by their positions in the splits as stored."""
    unseen: Unseen = replace(outcomes.unseen, rows=problem.positions[outcomes.unseen.rows])
    return replace(outcomes, unseen=unseen, tests=problem.test_positions)


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[np.generic]]:
    return {name: value.numpy() for name, value in tensors.items()}
