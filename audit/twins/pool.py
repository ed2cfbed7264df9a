"""Worker processes on this machine: one task at a time each, one processor each."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread

import cloudpickle

from audit.twins.parcel import parcel_of
from audit.twins.work import Task, Workplace
from audit.twins.worker import BEGIN, Answer

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
