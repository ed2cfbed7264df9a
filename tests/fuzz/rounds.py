"""Runs inputs in children of this process, each under limits of time and memory, and says which broke the promise.

Importing the libraries takes as long as thousands of inputs: this process imports what a reader needs once, children
take that over, and each of them is given many inputs. How far a child is stands in memory that both see: a line in a
pipe for every input would wake this process as often.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from audit.errors import AuditError
from fuzz.targets import TARGETS

SECONDS = 60.0  # of computing for one input
WAITING = 600.0  # for one input that does not compute: on a machine that others fill, a sound one may wait
MEMORY = 3 << 30  # bytes beside what the parent holds: --memory 1GB, 1 GB beside it, libraries
BATCH = 2000  # inputs for one child
TICKS = os.sysconf("SC_CLK_TCK")


class Progress:
    """The next input of a child, and when it began with it, by the clock and by what it had computed until then."""

    def __init__(self, first: int) -> None:
        self.shared = mmap.mmap(-1, 24)
        self.begin(first)

    def begin(self, seed: int) -> None:
        self.shared[:] = struct.pack("qdd", seed, time.monotonic(), time.process_time())

    def read(self) -> tuple[int, float, float]:
        seed, clock, computed = struct.unpack("qdd", self.shared[:])
        return seed, clock, computed


def broken(name: str, seeds: range, until: float = float("inf")) -> Iterator[dict[str, object]]:
    """What went wrong with these inputs of a target: a traceback, a crash, or too long a time.

    Returns the first input that was not tried, as the clock had come to `until`.
    """
    _import_for(name)
    at = seeds.start
    while at < seeds.stop and time.monotonic() < until:
        at = yield from _batch(name, range(at, min(at + BATCH, seeds.stop)), until)
    return at


@cache
def _import_for(name: str) -> None:
    """Imports what a child that has read one input has imported; no reader runs in this process itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _silence()
        with suppress(BaseException):
            TARGETS[name].run(0)
        with os.fdopen(writing, "w") as pipe:
            pipe.write("\n".join(sys.modules))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        modules = pipe.read().split()
    os.waitpid(child, 0)
    for module in modules:
        with suppress(Exception):  # some are made while their library runs, and are no files
            importlib.import_module(module)


def _batch(name: str, seeds: range, until: float) -> Iterator[dict[str, object]]:
    """One child; the number of the first input that is still to be done is returned."""
    progress = Progress(seeds.start)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(name, seeds, progress, until, writing)
    os.close(writing)
    took_too_long = False
    with os.fdopen(reading, "rb", buffering=0) as lines:  # no line may wait in a buffer that select does not see
        while True:
            if select.select([lines], [], [], 1.0)[0]:
                if not (line := lines.readline()):
                    break
                yield {"target": name, **json.loads(line)}
            elif _too_long(child, progress):
                took_too_long = True
                os.kill(child, signal.SIGKILL)
                break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    at, _, _ = progress.read()
    if code == 0 and not took_too_long and (at == seeds.stop or time.monotonic() > until):
        return at
    how = f"took more than {SECONDS:g} seconds" if took_too_long else f"ended the process with {code}"
    yield {"target": name, "seed": at, "error": how}
    return at + 1


def _too_long(child: int, progress: Progress) -> bool:
    """Whether a child computes, or waits, too long for its input."""
    _, clock, computed = progress.read()
    if time.monotonic() - clock > WAITING:
        return True
    with suppress(FileNotFoundError):
        user, system = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / TICKS - computed > SECONDS
    return time.monotonic() - clock > SECONDS  # another system than Linux


def _work(name: str, seeds: range, progress: Progress, until: float, writing: int) -> None:
    """In the child: tells what an input raised that is no sentence."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, hard))
    _silence()
    with os.fdopen(writing, "w", buffering=1) as pipe:
        for seed in seeds:
            progress.begin(seed)
            if time.monotonic() > until:
                os._exit(0)
            try:
                TARGETS[name].run(seed)
            except AuditError as error:
                if len(str(error).splitlines()) != 1:
                    print(json.dumps({"seed": seed, "error": f"not one line: {error!s}"[:500]}), file=pipe)
            except BaseException:
                print(json.dumps({"seed": seed, "error": traceback.format_exc()[-1500:]}), file=pipe)
        progress.begin(seeds.stop)
    os._exit(0)


def _silence() -> None:
    """For good: what a child says is for nobody."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
