"""Who does the tasks: this very process, a pool of processes on this machine, or a Ray cluster.

A crew takes tasks and answers when one is finished; `Engine` chooses it, keeps it busy, and gives a task to another
worker when one is lost. What comes out is the same: a task depends on its seeds alone, each worker has one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

import torch

from audit.errors import UsageError
from audit.settings.limits import budget_bytes
from audit.twins.pool import Cluster, Pool, check_installed
from audit.twins.work import Made, Task, Workplace, make
from audit.twins.worker import Answer, CannotTravel

EngineName = Literal["local", "ray"]
ATTEMPTS = 3  # at a task whose worker is lost
LEAST = 256 << 20  # bytes of the memory budget for each worker
LOST = f"its worker was lost {ATTEMPTS} times, perhaps for want of memory"


class Crew(Protocol):
    """Workers."""

    @property
    def size(self) -> int:
        """How many tasks they do at once."""

    def begin(self, task: Task) -> Any:
        """Hands a task to a worker that has none; answers with what the task goes by."""

    def wait(self) -> tuple[Any, Answer | None]:
        """The next finished task, by what it goes by; None for an answer where its worker is no more."""

    def close(self) -> None:
        """Ends all workers, whatever they are at."""


class Here:
    """The process that asks."""

    size = 1

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._tasks: list[Task] = []

    def begin(self, task: Task) -> Task:
        """Later."""
        self._tasks.append(task)
        return task

    def wait(self) -> tuple[Task, Answer]:
        """Now."""
        task, begin = self._tasks.pop(), time.monotonic()
        return task, Answer(make(self._place, task), time.monotonic() - begin)

    def close(self) -> None:
        """Nobody else is here."""


@dataclass(frozen=True)
class Finished:
    """A task, and its twins."""

    task: Task
    made: list[Made]
    seconds: float = 0.0  # that it took
    lost: str | None = None  # why there are none, where every worker that tried was lost


@dataclass(frozen=True)
class _Attempt:
    task: Task
    begin: float  # by this machine's clock
    number: int = 1

    def again(self) -> _Attempt:
        """With the time that is left."""
        now = time.monotonic()
        return _Attempt(replace(self.task, seconds=self.task.seconds - (now - self.begin)), now, self.number + 1)


class _Told(Exception):
    """What a worker said of its error, line by line."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def chosen_engine(name: str) -> EngineName:
    """The engine of this name, if it can be had."""
    for known in get_args(EngineName):
        if name == known:
            if name == "ray":
                check_installed()
            return known  # type: ignore[no-any-return]
    raise UsageError(f"--engine: there is no engine {name!r}; the engines are {' and '.join(get_args(EngineName))}.")


class Engine:
    """Does tasks with as many workers as there are, which stay until it is closed."""

    def __init__(self, name: EngineName, place: Workplace, workers: int | None, say: Callable[[str], None]) -> None:
        self._name, self._place, self._say = name, place, say
        self._workers = workers or torch.get_num_threads()  # what one process would take in threads
        self._crew: Crew = Here(place)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.close()

    @property
    def size(self) -> int:
        """How many tasks are done at once."""
        return self._crew.size

    def finished(self, tasks: Iterator[Task], most: int) -> Iterator[Finished]:
        """Takes a task whenever a worker is free, and gives those back that are finished, in whatever order."""
        if isinstance(self._crew, Here):
            self._crew = self._hired(most)
        running: dict[Any, _Attempt] = {}
        lost: list[_Attempt] = []
        while True:
            while len(running) < self._crew.size and (attempt := _next(lost, tasks)) is not None:
                running[self._crew.begin(attempt.task)] = attempt
            if not running:
                return
            which, answer = self._crew.wait()
            if (attempt := running.pop(which, None)) is None:
                continue  # a worker that was lost with nothing to do
            if answer is not None:
                yield Finished(attempt.task, _made(answer), answer.seconds)
            elif attempt.number == ATTEMPTS:
                yield Finished(attempt.task, [], lost=LOST)
            else:
                lost.append(attempt.again())

    def _hired(self, tasks: int) -> Crew:
        settings = self._place.measuring.settings
        try:
            if self._name == "ray":
                return Cluster(self._place)
            workers = min(self._workers, budget_bytes(settings.memory) // LEAST)
            return Pool(self._place, workers) if min(workers, tasks) > 1 else self._crew
        except CannotTravel as error:
            if self._name == "ray":
                raise UsageError(
                    f"--engine ray: the model cannot be sent to workers ({error}); use --engine local."
                ) from error
            self._say(f"one task after the other: the model cannot be sent to other processes ({error})")
            self._workers = 1
            return self._crew


def _next(lost: list[_Attempt], tasks: Iterator[Task]) -> _Attempt | None:
    if lost:
        return lost.pop()
    task = next(tasks, None)
    return None if task is None else _Attempt(task, time.monotonic())


def _made(answer: Answer) -> list[Made]:
    if answer.error is not None:
        raise answer.error from (_Told(answer.trace) if answer.trace else None)
    return answer.made
