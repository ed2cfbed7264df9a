"""One task: some twins of one kind, trained at once, judged and measured. Tasks know nothing of each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audit.settings.limits import budget_bytes
from audit.twins import Recipe, Twin, TwinOutcomes, Unseen
from audit.twins.kinds import Kind
from audit.twins.outcomes import Judged, Measuring, judge
from audit.twins.problem import Problem
from audit.twins.recipes import at_stable_rate, long_enough
from audit.twins.training import Architecture, Goal, Lesson, Samples, Trained, Training


@dataclass(frozen=True)
class Change:
    """How the twins of a task are trained."""

    kind: str
    recipe: Recipe  # with the kind's change
    goal: Goal


TrainWith = Callable[[Architecture, Samples, Change, list[Lesson]], list[Trained]]
"""What trains: one network for each lesson, in their order."""


SCALED = 3  # times, at most, that a kind's change is made weaker or stronger
WEAKER, STRONGEST = 0.25, 4.0  # by how much at once; 4 is the most
BELOW = 1.5  # times below the target: settled there, a change is too weak to be what the model was trained by


@dataclass(frozen=True)
class Task:
    """Twins to be made at once."""

    kind: Kind
    family: str
    recipe: Recipe  # of the family, without the kind's change
    seeds: tuple[int, ...]
    search: bool = False  # whether a stable rate for the recipe is looked for first
    seconds: float = math.inf  # left for training from its beginning on: clocks of other machines differ


@dataclass(frozen=True)
class Made:
    """A twin, what it does sample by sample, and its parameters."""

    twin: Twin
    outcomes: TwinOutcomes
    weights: dict[str, NDArray[np.generic]]


def train(architecture: Architecture, samples: Samples, change: Change, lessons: list[Lesson]) -> list[Trained]:
    """All lessons at once."""
    return Training(architecture, samples, change.recipe, lessons).run(change.goal)


@dataclass(frozen=True)
class Workplace:
    """What every task needs, wherever it is done: it is brought there once."""

    problem: Problem
    measuring: Measuring
    train_with: TrainWith = train
    kinds: tuple[Kind, ...] = ()  # that tasks may be of: one that cannot be sent shows before any is begun

    def one_of(self, workers: int) -> Workplace:
        """With its share of the memory budget."""
        settings = self.measuring.settings
        share = str(max(1, budget_bytes(settings.memory) // workers))
        return replace(self, measuring=replace(self.measuring, settings=replace(settings, memory=share)))


def make(place: Workplace, task: Task) -> list[Made]:
    """The twins of a task; those that its end interrupted are not among them."""
    change = _change(place, task)
    judged, fine = _trained(place, task, change)
    for _ in range(SCALED):
        factor = _factor(task.kind, judged, place.problem.target)
        if factor is None or task.kind.scaled is None:
            break
        other = replace(change, recipe=task.kind.scaled(change.recipe, factor))
        found, matched = _trained(place, task, other)
        if fine and not (matched and all(not one.interrupted for one, _ in found)):
            break  # what there is stays
        change, judged, fine = other, found, matched
    return [_made(place, task, change, *each) for each in judged if not each[0].interrupted]


JudgedTwins = list[tuple[Trained, Judged]]


def _trained(place: Workplace, task: Task, change: Change) -> tuple[JudgedTwins, bool]:
    """The twins of a task by one change, and whether most of them can be brought to the target."""
    problem = place.problem
    lessons = [task.kind.lesson(problem.train, seed) for seed in task.seeds]
    trained = place.train_with(problem.architecture, problem.train, change, lessons)
    judged = [(one, _judge(problem, one)) for one in trained]
    return judged, _most_fit(judged)


def _most_fit(judged: JudgedTwins) -> bool:
    return 2 * sum(found.matched or one.interrupted for one, found in judged) >= len(judged)


def _factor(kind: Kind, judged: JudgedTwins, target: float) -> float | None:
    """How many times as strong a change must be; None where it is as it should be, or has no strength.

    Too strong for the target is weakened. Settled well below it, the change is too weak: then a model with this train
    loss was not trained so, and at the same loss its twins would be softened, and unlike it for that alone.
    """
    if kind.scaled is None or any(one.interrupted for one, _ in judged):
        return None
    if not _most_fit(judged):
        return WEAKER
    settled = median(one.train_loss for one, found in judged if found.matched)
    return min(STRONGEST, target / settled) if kind.settles and BELOW * settled < target else None


def _change(place: Workplace, task: Task) -> Change:
    """What is to be trained how, from now on for as long as is left."""
    deadline = time.monotonic() + task.seconds
    problem, kind, recipe = place.problem, task.kind, task.recipe
    if task.search:
        recipe = long_enough(at_stable_rate(problem.architecture, problem.train, recipe), len(problem.train.x))
    own, changed = place.train_with is not train, kind.recipe(recipe)  # an owner's loop needs a target
    if kind.own_rate and not own:
        changed = at_stable_rate(problem.architecture, problem.train, changed)
    settles = kind.settles and problem.task != "regression" and not own
    goal = Goal(0.0, deadline, last=True) if settles else Goal(problem.target * kind.target, deadline)
    return Change(kind.name, changed, goal)


def _judge(problem: Problem, trained: Trained) -> Judged:
    return judge(problem.architecture.network, trained, problem.train, problem.test, problem.target)


def _made(place: Workplace, task: Task, change: Change, trained: Trained, judged: Judged) -> Made:
    problem = place.problem
    numbers = {}
    if task.kind.measured and judged.matched and not problem.tail:
        model, data = problem.twin(trained, judged.temperature), problem.taught(trained.lesson)
        numbers = place.measuring.numbers(model, data, problem.task)
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


def _stored(outcomes: TwinOutcomes, problem: Problem) -> TwinOutcomes:
    """With samples by their positions in the splits as stored."""
    unseen: Unseen = replace(outcomes.unseen, rows=problem.positions[outcomes.unseen.rows])
    return replace(outcomes, unseen=unseen, tests=problem.test_positions)


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[np.generic]]:
    return {name: value.numpy() for name, value in tensors.items()}
