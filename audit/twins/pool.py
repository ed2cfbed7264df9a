"""Tasks done side by side: by worker processes on this machine, or on a Ray cluster, imported when asked for."""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import cloudpickle

from audit.errors import UsageError
from audit.report.conduct import readable_seconds
from audit.twins.work import Task, Workplace
from audit.twins.worker import BEGIN, Answer, Parcel, alone, attempt, parcel_of

# Worker processes on this machine: one task at a time each, one processor each.


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


# Tasks on a Ray cluster: that of RAY_ADDRESS, or one on this machine alone. Ray is imported when asked for.


ADDRESS = "RAY_ADDRESS"
PATIENCE = 10.0  # seconds, until a machine counts as not there


def check_installed() -> None:
    """Refuses before anything is done for it."""
    if find_spec("ray") is None:
        raise UsageError("--engine ray: Ray is not installed; install it with `pip install 'gen-audit[ray]'`.")


class Cluster:
    """Tasks as Ray's tasks, one processor each. Ray is not to try again: what is lost is counted here."""

    def __init__(self, place: Workplace) -> None:
        check_installed()
        parcel = parcel_of(place.one_of(os.cpu_count() or 1))
        with _own_signals():
            self._ray: Any = import_module("ray")
            self._ours = not self._ray.is_initialized()
            if self._ours:
                _connect(self._ray)
        self._parcel = self._ray.put(parcel)  # once to every machine
        self._attempt = self._ray.remote(num_cpus=1, max_retries=0)(attempt_here)
        self._running: list[Any] = []

    @property
    def size(self) -> int:
        """Processors that the cluster has now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def begin(self, task: Task) -> Any:
        """Hands it to the cluster."""
        reference = self._attempt.remote(self._parcel, sys.path, task)
        self._running.append(reference)
        return reference

    def wait(self) -> tuple[Any, Answer | None]:
        """The next answer, and whose it is; None for a task whose worker or machine is no more."""
        (reference, *_), _ = self._ray.wait(self._running, num_returns=1)
        self._running.remove(reference)
        try:
            return reference, self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise UsageError(
                f"--engine ray: a worker cannot begin ({_reason(error)}); install this version of gen-audit on every "
                "machine of the cluster."
            ) from error
        except self._ray.exceptions.RayError:
            return reference, None

    def close(self) -> None:
        """Ends what is running; leaves a cluster as it was found."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._ours:
            self._ray.shutdown()


def attempt_here(parcel: Parcel, path: list[str], task: Task) -> Answer:
    """One task in a process of the cluster, which finds modules where its sender does, say on a shared disk."""
    sys.path += [place for place in path if place not in sys.path]
    alone()
    return attempt(partial(_opened, parcel), task)


@lru_cache(maxsize=1)  # a process does many tasks of one parcel
def _opened(parcel: Parcel) -> Workplace:
    own = replace(parcel, arrays=[array.copy() for array in parcel.arrays])  # Ray's cannot be written to
    place: Workplace = own.opened()
    return place


def _connect(ray: Any) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    address = os.environ.get(ADDRESS, "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    own = {} if address else {"include_dashboard": False}
    try:
        if port.isdecimal():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), PATIENCE).close()
        ray.init(log_to_driver=False, logging_level="ERROR", **own)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{ADDRESS}={address}: no Ray cluster can be had there ({_reason(error)}); start one with `ray start "
            f"--head`, or unset {ADDRESS} for one on this machine alone."
        ) from error


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200].rstrip(".")


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray answers SIGTERM in its own way from the import on; whoever runs the audit has decided that already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
