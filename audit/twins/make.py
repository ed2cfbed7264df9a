"""Makes the twins of a model: the family of its training first, then kind after kind, as long as the budget lasts.

After every task the folder is written, so that what was made stays made: the same call goes on where one ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from audit.errors import UsageError
from audit.report.plan import readable_seconds
from audit.twins.families import ORDINARY, at_stable_rate, nearest_family, other_starts
from audit.twins.index import INDEX, About, Outcomes, Recipe, Twin, TwinSet, read_twins, write_twins, write_weights
from audit.twins.kinds import KINDS, Kind
from audit.twins.measure import Measuring, measuring
from audit.twins.problem import Problem
from audit.twins.work import Made, Task, TrainWith, make, train

AT_ONCE = 8  # twins in one task
MOST_NUMBERS = 100_000_000  # parameters of all twins of a task
SEARCHED = 2  # plain twins in each ordinary recipe
PLAIN = KINDS[0]
GIVEN, USUAL = "given", "sgd-middle"
TAIL = "Only the dense tail was trained anew, on the model's own features: these twins are no band for inner numbers."
GUESS = 6.0  # seconds of a plain twin before one was made
INFERRED = "The recipe was not given: it is that of the ordinary trainings whose twins the model resembles most."

MERGED = "BatchNorm"  # in the notes of a model into whose weights one was multiplied
WITHOUT = "A BatchNorm was folded into the weights of the file, so the twins were trained without it."

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """What is to be made."""

    kinds: tuple[Kind, ...] = KINDS
    count: int | None = None  # of each kind, instead of its own
    recipe: Recipe | None = None
    budget: float | None = None  # seconds
    train_with: TrainWith = train
    say: Say = field(default=lambda line: None)


def make_folder(problem: Problem, folder: Path, wish: Wish) -> TwinSet:
    """Makes what is wished for and not there yet."""
    return _Workshop(problem, folder, wish).run()


class _Workshop:
    """A folder of twins being made."""

    def __init__(self, problem: Problem, folder: Path, wish: Wish) -> None:
        self._problem, self._folder, self._wish = problem, folder, wish
        self._begin = time.monotonic()
        self._units = self._seconds = 0.0  # of work done, in plain twins, and the time that it took
        settings = problem.settings
        self._measuring: Measuring = measuring(problem.model, problem.data, problem.task, settings)
        self._set = self._begun()

    def run(self) -> TwinSet:
        """The family, then the kinds."""
        if not self._set.family:  # a folder that is gone on with has one
            self._find_family()
        wanted = list(self._tasks())
        left_out: list[tuple[str, str]] = []
        for place, task in enumerate(wanted):
            if (why := self._refused(task)) is None:
                self._make(task, wanted[place + 1 :])
                why = (
                    None
                    if self._has(task)
                    else f"no time was left to finish {'it' if len(task.seeds) == 1 else 'them'}"
                )
            if why is not None and not self._set.of(task.kind.name) and task.kind.name not in dict(left_out):
                left_out.append((task.kind.name, why))
        made = {twin.kind for twin in self._set.twins}
        others = [(kind.name, "not asked for") for kind in KINDS if kind not in self._wish.kinds]
        missing = [(name, why) for name, why in (*left_out, *others) if name not in made]
        self._set = replace(self._set, left_out=tuple(missing))
        write_twins(self._folder, self._set)
        return self._set

    def _begun(self) -> TwinSet:
        """The folder as it is, or the beginning of one."""
        about = self._problem.about(self._wish.recipe)
        if (self._folder / INDEX).exists():
            found = read_twins(self._folder)
            if found.about != about:
                raise UsageError(
                    f"{self._folder}: holds twins of another model, other data, another train loss or another recipe; "
                    "choose another folder."
                )
            return found
        if self._problem.tail:
            return self._begun_tail(about)
        numbers = self._measuring.numbers(self._problem.model, self._problem.data, self._problem.task)
        recipe = self._wish.recipe
        return TwinSet(
            about=about,
            recipe=recipe or ORDINARY[USUAL],
            recipe_given=recipe is not None,
            family=GIVEN if recipe is not None else "",
            families={} if recipe is None else {GIVEN: recipe},
            model=numbers,
            twins=(),
            left_out=(),
            notes=_notes(self._problem, recipe is not None),
        )

    def _begun_tail(self, about: About) -> TwinSet:
        """Tails have no inner numbers to find a family by: a usual recipe, where none is given."""
        given = self._wish.recipe
        usual = at_stable_rate(self._problem.architecture, self._problem.train, ORDINARY[USUAL])
        family, recipe = (USUAL, usual) if given is None else (GIVEN, given)
        return TwinSet(
            about=about,
            recipe=recipe,
            recipe_given=given is not None,
            family=family,
            families={family: recipe},
            model={},
            twins=(),
            left_out=(),
            notes=(TAIL,),
        )

    def _find_family(self) -> None:
        """Plain twins in every ordinary recipe, then in the nearest one from other starts."""
        self._search(ORDINARY)
        if nearest := self._nearest(ORDINARY):
            self._search(other_starts(nearest, self._set.families[nearest]))
        family = self._nearest(self._set.families)
        if family is None:
            raise UsageError(
                f"{self._folder}: no twin of any ordinary recipe reached the model's train loss of "
                f"{self._problem.target:.3g} in time; give a --recipe, or a longer --budget."
            )
        self._set = replace(self._set, family=family, recipe=self._set.families[family])
        self._wish.say(f"resembles plain twins by {family}: kinds are made in that family")

    def _search(self, recipes: Mapping[str, Recipe]) -> None:
        """Plain twins by these recipes, as far as the budget has time for them: half of it at most."""
        names = [name for name in recipes if name not in self._set.families or not self._made(name)]
        for place, name in enumerate(names):
            if self._left() < (self._wish.budget or math.inf) / 2 and self._set.families:
                break
            recipe = at_stable_rate(self._problem.architecture, self._problem.train, recipes[name])
            self._set = replace(self._set, families={**self._set.families, name: recipe})
            rest = [self._task(PLAIN, other, recipes[other], range(SEARCHED)) for other in names[place + 1 :]]
            self._make(self._task(PLAIN, name, recipe, range(SEARCHED)), rest)

    def _nearest(self, among: Iterable[str]) -> str | None:
        """The family whose plain twins the model resembles most; None where none was measured."""
        measured = {name: numbers for name in among if (numbers := self._made(name))}
        return nearest_family(self._set.model, measured) if measured else None

    def _made(self, family: str) -> list[Mapping[str, float]]:
        return [twin.numbers for twin in self._set.of("plain", family) if twin.numbers]

    def _tasks(self) -> Iterator[Task]:
        """What is wished for and not made, in order of worth."""
        for kind in self._wish.kinds:
            done = {twin.seed for twin in self._set.of(kind.name)}
            count = self._wish.count or kind.count
            seeds = [seed for seed in range(count) if seed not in done]
            size = self._at_once()
            for start in range(0, len(seeds), size):
                yield self._task(kind, self._set.family, self._set.recipe, seeds[start : start + size])

    def _at_once(self) -> int:
        numbers = sum(value.numel() for value in self._problem.architecture.network.parameters())
        return max(1, min(AT_ONCE, MOST_NUMBERS // max(1, numbers)))

    def _task(self, kind: Kind, family: str, recipe: Recipe, seeds: range | list[int]) -> Task:
        budget = self._wish.budget
        deadline = math.inf if budget is None else self._begin + budget
        return Task(kind, family, recipe, tuple(seeds), deadline)

    def _refused(self, task: Task) -> str | None:
        """Why a task is not begun."""
        why = task.kind.refused(self._problem.architecture, self._problem.train)
        if why is None and self._predicted(task) > self._left():
            return f"no time was left within the budget of {readable_seconds(self._wish.budget or 0)}"
        return why

    def _make(self, task: Task, rest: list[Task]) -> None:
        self._wish.say(self._words(task, rest))
        begin = time.monotonic()
        for made in make(self._problem, self._measuring, task, self._wish.train_with):
            self._keep(made)
        self._seconds += time.monotonic() - begin
        self._units += task.kind.work * len(task.seeds)
        write_twins(self._folder, self._set)

    def _keep(self, made: Made) -> None:
        write_weights(self._folder, made.twin, made.weights)
        twins: tuple[Twin, ...] = (*self._set.twins, made.twin)
        outcomes: tuple[Outcomes, ...] = (*self._set.outcomes, made.outcomes)
        self._set = replace(self._set, twins=twins, outcomes=outcomes)

    def _has(self, task: Task) -> bool:
        made = {twin.seed for twin in self._set.of(task.kind.name, task.family)}
        return set(task.seeds) <= made

    def _left(self) -> float:
        budget = self._wish.budget
        return math.inf if budget is None else self._begin + budget - time.monotonic()

    def _predicted(self, task: Task) -> float:
        unit = self._seconds / self._units if self._units else GUESS
        return unit * task.kind.work * len(task.seeds)

    def _words(self, task: Task, rest: list[Task]) -> str:
        ahead = min(sum(map(self._predicted, (task, *rest))), max(self._left(), 0.0))
        count = f"{len(task.seeds)} twin{'s' if len(task.seeds) > 1 else ''}"
        return f"{task.kind.name} ({task.family}): {count}, about {readable_seconds(ahead)} left"


def _notes(problem: Problem, given: bool) -> tuple[str, ...]:
    """What a reader should know of how the twins were made."""
    folded = any(MERGED in note for note in problem.model.notes)
    return (*(() if given else (INFERRED,)), *((WITHOUT,) if folded else ()))
