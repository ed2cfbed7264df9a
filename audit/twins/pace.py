"""How long tasks take, as far as those that are finished tell, and how much time is left."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from audit.report.plan import readable_seconds
from audit.twins.work import Task

GUESS = 6.0  # seconds of a plain twin before one was made


class Pace:
    """Of twins that are being made, from now on."""

    def __init__(self, budget: float | None) -> None:
        self._budget, self._begin = budget, time.monotonic()
        self._units = self._seconds = 0.0  # of work done, in plain twins, and the time that it took its workers
        self._running: dict[object, tuple[Task, float]] = {}

    def left(self) -> float:
        """Seconds of the budget; without end where there is none."""
        return math.inf if self._budget is None else self._begin + self._budget - time.monotonic()

    def begun(self, task: Task) -> None:
        """A worker is at it."""
        self._running[_name(task)] = task, time.monotonic()

    def finished(self, task: Task, seconds: float) -> None:
        """It took so long; 0 where it was lost."""
        del self._running[_name(task)]
        if seconds:
            self._seconds += seconds
            self._units += task.kind.work * len(task.seeds)

    def predicted(self, task: Task) -> float:
        """Seconds of one worker."""
        unit = self._seconds / self._units if self._units else GUESS
        return unit * task.kind.work * len(task.seeds)

    def refused(self, task: Task) -> str | None:
        """Why a task is not begun any more."""
        if self.predicted(task) <= self.left():
            return None
        return f"no time was left within the budget of {readable_seconds(self._budget or 0)}"

    def words(self, task: Task, waiting: Iterable[Task], workers: int) -> str:
        """What is begun, and for how long all that is at work and waiting will take, side by side."""
        now = time.monotonic()
        running = [max(self.predicted(task) - (now - begin), 0.0) for task, begin in self._running.values()]
        ahead = [*running, *map(self.predicted, waiting)]
        seconds = min(max(sum(ahead) / workers, *ahead), max(self.left(), 0.0))
        count = f"{len(task.seeds)} twin{'s' if len(task.seeds) > 1 else ''}"
        return f"{task.kind.name} ({task.family}): {count}, about {readable_seconds(seconds)} left"


def _name(task: Task) -> object:
    return task.family, task.kind.name, task.seeds
