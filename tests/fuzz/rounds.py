"""Runs inputs in children of this process, each under limits of time and memory, and says which broke the promise.

Importing the libraries takes as long as thousands of inputs: this process imports what a reader needs once, children
take that over, and each of them is given many inputs.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from audit.errors import AuditError
from fuzz.targets import TARGETS

SECONDS = 60.0  # for one input
MEMORY = 3 << 30  # bytes beside what the parent holds: --memory 1GB, 1 GB beside it, libraries
BATCH = 2000  # inputs for one child


def broken(name: str, seeds: range) -> Iterator[dict[str, object]]:
    """What went wrong with these inputs of a target: a traceback, a crash, or too long a time."""
    _import_for(name)
    at = seeds.start
    while at < seeds.stop:
        batch = range(at, min(at + BATCH, seeds.stop))
        at = yield from _batch(name, batch)


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


def _batch(name: str, seeds: range) -> Iterator[dict[str, object]]:
    """One child; the number of the first input that is still to be done is returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(name, seeds, writing)
    os.close(writing)
    current, begin = seeds.start, time.monotonic()
    with os.fdopen(reading, "rb", buffering=0) as lines:  # no line may wait in a buffer that select does not see
        while select.select([lines], [], [], max(0.0, begin + SECONDS - time.monotonic()))[0]:
            if not (line := lines.readline()):
                break
            told = json.loads(line)
            current, begin = told["seed"], time.monotonic()
            if "error" in told:
                yield {"target": name, **told}
        else:
            os.kill(child, signal.SIGKILL)
            yield {"target": name, "seed": current, "error": f"took more than {SECONDS:g} seconds"}
    status = os.waitpid(child, 0)[1]
    if status == 0:
        return seeds.stop
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        yield {"target": name, "seed": current, "error": f"ended by signal {os.WTERMSIG(status)}"}
    return current + 1


def _work(name: str, seeds: range, writing: int) -> None:
    """In the child: says which input is next, and what it raised that is no sentence."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, hard))
    _silence()
    with os.fdopen(writing, "w", buffering=1) as pipe:
        for seed in seeds:
            print(json.dumps({"seed": seed}), file=pipe)
            try:
                TARGETS[name].run(seed)
            except AuditError as error:
                if len(str(error).splitlines()) != 1:
                    print(json.dumps({"seed": seed, "error": f"not one line: {error!s}"[:500]}), file=pipe)
            except BaseException:
                print(json.dumps({"seed": seed, "error": traceback.format_exc()[-1500:]}), file=pipe)
    os._exit(0)


def _silence() -> None:
    """For good: what a child says is for nobody."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
