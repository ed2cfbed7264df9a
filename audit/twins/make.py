"""Makes the twins of a model: the family of its training first, then the kinds by their worth, as the budget lasts.

An engine does the tasks. After every one that is finished the folder is written, so that what was made stays made: the
same call goes on where one ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from audit.errors import UsageError
from audit.twins import INDEX, About, Recipe, TwinSet, read_twins, write_twins, write_weights
from audit.twins.engines import Engine, EngineName
from audit.twins.kinds import KINDS, Kind
from audit.twins.outcomes import measuring
from audit.twins.pool import Pace
from audit.twins.problem import Problem
from audit.twins.recipes import ORDINARY, at_stable_rate, long_enough, nearest_family, other_starts
from audit.twins.training import Architecture
from audit.twins.work import Made, Task, TrainWith, Workplace, train

AT_ONCE = 8  # twins in one task
MOST_NUMBERS = 1_000_000  # parameters in one task: beyond them nothing is saved by training at once, only workers idle
SEARCHED = 2  # plain twins in each ordinary recipe
PLAIN = KINDS[0]
GIVEN, USUAL = "given", "sgd-middle"
TAIL = "Only the dense tail was trained anew, on the model's own features: these twins are no band for inner numbers."
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
    engine: EngineName = "local"
    workers: int | None = None  # of the local engine, instead of one for each processor
    say: Say = field(default=lambda line: None)


def make_folder(problem: Problem, folder: Path, wish: Wish) -> TwinSet:
    """Makes what is wished for and not there yet."""
    measured = measuring(problem.model, problem.data, problem.task, problem.settings)
    place = Workplace(problem, measured, wish.train_with, wish.kinds)
    with Engine(wish.engine, place, wish.workers, wish.say) as engine:
        return _Workshop(place, folder, wish, engine).run()


class _Workshop:
    """A folder of twins being made."""

    def __init__(self, place: Workplace, folder: Path, wish: Wish, engine: Engine) -> None:
        self._problem, self._measuring = place.problem, place.measuring
        self._folder, self._wish, self._engine = folder, wish, engine
        self._pace = Pace(wish.budget)
        self._left_out: dict[str, str] = {}
        self._set = self._begun()

    def run(self) -> TwinSet:
        """The family, then the kinds."""
        if not self._set.family:  # a folder that is gone on with has one
            self._find_family()
        self._do(list(self._tasks()))
        made = {twin.kind for twin in self._set.twins}
        others = {kind.name: "not asked for" for kind in KINDS if kind not in self._wish.kinds}
        missing = [(name, why) for name, why in {**self._left_out, **others}.items() if name not in made]
        self._set = replace(self._set, left_out=tuple(sorted(missing, key=lambda one: _worth(one[0]))))
        write_twins(self._folder, self._set)
        return self._set

    def _do(self, tasks: list[Task]) -> None:
        """Has the tasks done, in order of worth and side by side; what is finished is kept."""
        most, waiting = len(tasks), list(tasks)
        for finished in self._engine.finished(self._handed_over(waiting), most):
            task = finished.task
            self._pace.finished(task, finished.seconds)
            for made in finished.made:
                self._keep(made, task)
            write_twins(self._folder, self._set)
            if not self._has(task):
                self._leave_out(task, finished.lost or f"no time was left to finish {_them(task)}")

    def _handed_over(self, waiting: list[Task]) -> Iterator[Task]:
        """One task after the other, as soon as there is somebody to do it, as long as there is time."""
        while waiting:
            task = waiting.pop(0)
            if (why := self._refused(task)) is not None:
                self._leave_out(task, why)
                continue
            self._pace.begun(task)
            self._wish.say(self._pace.words(task, waiting, self._engine.size))
            yield replace(task, seconds=self._pace.left())

    def _refused(self, task: Task) -> str | None:
        """Why a task is not begun: the search takes half of the budget at most, but tries one recipe at least."""
        if task.search:
            over = self._pace.left() < (self._wish.budget or math.inf) / 2
            return "half of the budget is used up" if over and self._set.families else None
        return task.kind.refused(self._problem.architecture, self._problem.train) or self._pace.refused(task)

    def _leave_out(self, task: Task, why: str) -> None:
        if not task.search and not self._set.of(task.kind.name):
            self._left_out.setdefault(task.kind.name, why)

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
        train = self._problem.train
        usual = long_enough(at_stable_rate(self._problem.architecture, train, ORDINARY[USUAL]), len(train.x))
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
        """Plain twins by these recipes, as far as the budget has time for them."""
        names = [name for name in recipes if not self._set.of("plain", name)]
        self._do([Task(PLAIN, name, recipes[name], tuple(range(SEARCHED)), search=True) for name in names])

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
            size = at_once(self._problem.architecture)
            for start in range(0, len(seeds), size):
                yield Task(kind, self._set.family, self._set.recipe, tuple(seeds[start : start + size]))

    def _keep(self, made: Made, task: Task) -> None:
        """Beside the others, in an order that does not tell which was finished first."""
        write_weights(self._folder, made.twin, made.weights)
        families = self._set.families
        if task.search:
            found = {**families, task.family: made.twin.recipe or task.recipe}
            families = {name: found[name] for name in sorted(found, key=_usual_first)}
        every = [*zip(self._set.twins, self._set.outcomes, strict=True), (made.twin, made.outcomes)]
        every.sort(key=lambda one: (list(families).index(one[0].family), _worth(one[0].kind), one[0].seed))
        twins, outcomes = zip(*every, strict=True)
        self._set = replace(self._set, families=families, twins=twins, outcomes=outcomes)

    def _has(self, task: Task) -> bool:
        made = {twin.seed for twin in self._set.of(task.kind.name, task.family)}
        return set(task.seeds) <= made


def at_once(architecture: Architecture) -> int:
    """How many twins make one task; the same for every engine and number of workers, since dropout draws for all."""
    numbers = sum(value.numel() for value in architecture.network.parameters())
    return max(1, min(AT_ONCE, MOST_NUMBERS // max(1, numbers)))


def _worth(kind: str) -> tuple[int, str]:
    """The place of a kind among all; kinds of one's own come last."""
    names = [kind.name for kind in KINDS]
    return (names.index(kind), "") if kind in names else (len(names), kind)


def _usual_first(family: str) -> tuple[int, str]:
    names = list(ORDINARY)
    return (names.index(family), "") if family in names else (len(names), family)


def _them(task: Task) -> str:
    return "it" if len(task.seeds) == 1 else "them"


def _notes(problem: Problem, given: bool) -> tuple[str, ...]:
    """What a reader should know of how the twins were made."""
    folded = any(MERGED in note for note in problem.model.notes)
    return (*(() if given else (INFERRED,)), *((WITHOUT,) if folded else ()))
