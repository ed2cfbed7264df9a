"""A worker process of the pool: takes tasks from its standard input, writes answers to its standard output.

It is no child of `multiprocessing`, which would run the owner's script once more in every worker. It leaves when its
input ends, whatever became of the process that began it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import torch

from audit.errors import UsageError
from audit.twins.parcel import saved_parcel
from audit.twins.work import Made, Task, Workplace, make

BEGIN = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from audit.twins.worker import main; main()"
"""What a new Python is told: first of all, where to find what its sender can import."""


NOT_OPENED = (
    "A worker cannot open the model and its data ({}); install the same gen-audit and your own modules wherever there "
    "are workers."
)


@dataclass(frozen=True)
class Answer:
    """What became of a task."""

    made: list[Made] = field(default_factory=list)
    seconds: float = 0.0  # that it took
    error: BaseException | None = None
    trace: str = ""  # of the error


def attempt(find: Callable[[], Workplace], task: Task) -> Answer:
    """The task done, or what went wrong, as a value that can be sent."""
    begin = time.monotonic()
    try:
        place = find()
    except Exception as error:
        return Answer(error=UsageError(NOT_OPENED.format(f"{type(error).__name__}: {error}")))
    try:
        return Answer(make(place, task), time.monotonic() - begin)
    except Exception as error:
        return Answer(error=_portable(error), trace=traceback.format_exc())


def alone() -> None:
    """Sets this process up as one worker of several: one thread, and no warnings, which the first process has given."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def main() -> None:
    """Answers task after task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a training function prints is no answer
    alone()
    tasks: SimpleQueue[Task] = SimpleQueue()
    folder = Path(pickle.load(sys.stdin.buffer))

    @cache
    def place() -> Workplace:
        found: Workplace = saved_parcel(folder).opened()
        return found

    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        pickle.dump(attempt(place, tasks.get()), answers)
        answers.flush()


def _listen(tasks: SimpleQueue[Task]) -> None:
    """Passes tasks on; ends the process in the middle of one when nobody is left to answer."""
    while True:
        try:
            tasks.put(pickle.load(sys.stdin.buffer))
        except (EOFError, OSError):
            os._exit(0)


def _portable(error: Exception) -> BaseException:
    """The error, or one that says the same, where the former cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
