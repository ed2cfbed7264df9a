"""Worker processes on this machine: one task at a time each, one processor each."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread

import cloudpickle

from audit.report.plan import readable_seconds
from audit.twins.work import Task, Workplace
from audit.twins.worker import BEGIN, Answer, parcel_of

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Worker:
    """One process, and a thread here that waits for its answers; None is the last one, of a process that is no more."""

    def __init__(self, folder: Path, answers: SimpleQueue[tuple[Worker, Answer | None]]) -> None:
        self._answers = answers
        self._process = subprocess.Popen(
            [sys.executable, "-c", BEGIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
        )
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()
        self._send(pickle.dumps(sys.path))
        self._send(pickle.dumps(str(folder)))

    def give(self, task: Task) -> None:
        """Has it do a task."""
        self._send(cloudpickle.dumps(task))

    def end(self) -> None:
        """At once, whatever it is at."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdin is not None
        with suppress(OSError):  # of what it has not read
            self._process.stdin.close()

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # the thread notices
            self._process.stdin.write(message)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream, suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._answers.put((self, pickle.load(stream)))
        self._answers.put((self, None))


class Pool:
    """As many workers as were asked for, begun when they are needed, and again when one is lost."""

    def __init__(self, place: Workplace, size: int) -> None:
        self.size = size
        parcel = parcel_of(place.one_of(size))
        self._folder = TemporaryDirectory(prefix="gen-audit-")
        parcel.save(Path(self._folder.name))
        self._answers: SimpleQueue[tuple[Worker, Answer | None]] = SimpleQueue()
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []

    def begin(self, task: Task) -> Worker:
        """Hands it to a worker that has nothing to do."""
        worker = self._idle.pop() if self._idle else self._hired()
        worker.give(task)
        return worker

    def wait(self) -> tuple[Worker, Answer | None]:
        """The next answer, and whose it is."""
        worker, answer = self._answers.get()
        if answer is not None:
            self._idle.append(worker)
        else:
            self._workers.remove(worker)
            self._idle = [each for each in self._idle if each is not worker]
            worker.end()
        return worker, answer

    def close(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            worker.end()
        self._folder.cleanup()

    def _hired(self) -> Worker:
        worker = Worker(Path(self._folder.name), self._answers)
        self._workers.append(worker)
        return worker


# How long tasks take, as far as those that are finished tell, and how much time is left.


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
