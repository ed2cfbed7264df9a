"""A worker process of the pool: takes tasks from its standard input, writes answers to its standard output.

It is no child of `multiprocessing`, which would run the owner's script once more in every worker. It leaves when its
input ends, whatever became of the process that began it.
"""

from __future__ import annotations

import io
import mmap
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
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.errors import UsageError
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


# A value on its way to other processes: pickled once, its arrays apart, so that workers of one machine share them.
#
# `cloudpickle` also takes what a notebook has defined: a network's class, a training function, a kind's lambda.


ALIGNED = 64  # bytes: where arrays begin in a file
NUMPYS = {torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool}
VALUE, ARRAYS = "value.pickle", "arrays"


class CannotTravel(Exception):
    """What has no meaning in another process, such as an open file."""


@dataclass(frozen=True)
class Parcel:
    """A pickled value and the arrays in it, as bytes. A parcel is equal to what arrives of it elsewhere."""

    value: bytes = field(compare=False)
    arrays: list[NDArray[np.uint8]] = field(compare=False)
    key: str = field(default_factory=lambda: uuid4().hex)

    def opened(self) -> Any:
        """The value; its arrays are those of the parcel, not copies."""
        return pickle.loads(self.value, buffers=self.arrays)

    def save(self, folder: Path) -> None:
        """Into two files."""
        sizes = [array.nbytes for array in self.arrays]
        with (folder / ARRAYS).open("wb") as stream:
            for array in self.arrays:
                stream.write(array.data)
                stream.write(bytes(-stream.tell() % ALIGNED))
            stream.write(bytes(1))  # nothing cannot be mapped
        (folder / VALUE).write_bytes(pickle.dumps((sizes, self.value)))


def parcel_of(value: Any) -> Parcel:
    """The value ready to be sent, opened once to be sure."""
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    try:
        _Pickler(stream, buffers).dump(value)
        parcel = Parcel(stream.getvalue(), [np.asarray(buffer.raw()) for buffer in buffers])
        parcel.opened()
    except Exception as error:  # whatever a foreign object trips
        raise CannotTravel(f"{type(error).__name__}: {error}".splitlines()[0][:200].rstrip(".")) from error
    return parcel


def saved_parcel(folder: Path) -> Parcel:
    """The parcel of a folder, its arrays mapped: pages that nobody writes to are in memory once for all processes."""
    sizes, value = pickle.loads((folder / VALUE).read_bytes())
    with (folder / ARRAYS).open("rb") as stream:
        mapped = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    starts = accumulate((size + -size % ALIGNED for size in sizes), initial=0)
    return Parcel(value, [mapped[start : start + size] for start, size in zip(starts, sizes, strict=False)])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes tensors for the arrays that they are, and arrays out of the stream."""

    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)

    def reducer_override(self, value: Any) -> Any:
        """Of a plain tensor; cloudpickle's of anything else."""
        if type(value) is Tensor and value.device.type == "cpu" and value.dtype in NUMPYS and not value.requires_grad:
            return torch.from_numpy, (value.numpy(),)
        return super().reducer_override(value)
