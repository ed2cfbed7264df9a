"""gen-audit as a process, many times over: one Python imports the command line once and forks for each command.

There are two of them. One has what every command wakes; the other, for commands that run a network, has torch, too.
Whoever watches what a command imports gets the first.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from places import ROOT

from audit.measures.catalogue import CATALOGUE

SERVER = """
import json, os, sys, tempfile
{woken}
from audit.cli import main

for line in sys.stdin:
    case = json.loads(line)
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        os.chdir(case["cwd"])
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.argv = ["gen-audit", *case["arguments"]]
        exec(case["before"])
        main()
        os._exit(99)  # main leaves by itself
    status = os.waitpid(child, 0)[1]
    texts = [file.seek(0) or file.read().decode() for file in (out, err)]
    print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)
"""

LIGHT = "import numpy, pydantic"  # what the commands need is imported once
HEAVY = """
import numpy, pydantic, audit.run.pipeline, audit.render.page  # not onnxruntime: its threads outlive no fork
import torch, audit.network.cost
for dtype in (torch.float64, torch.float32):
    audit.network.cost.machine_speed(dtype)  # as a program does that makes many audits
"""
RUNS_A_NETWORK = ("report", "check", "verify", "twins", "layers")

STAGES = "|".join(("plan", "doctor", "forward", "capture", *(entry.key for entry in CATALOGUE), "checks"))
STAGE = re.compile(rf"^({STAGES}): .*\n", re.MULTILINE)


def complaints(stderr: str) -> str:
    """What a command says on stderr, but for the lines that tell how far it is."""
    return STAGE.sub("", stderr)


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """The Pythons that fork, each started when it is first asked for."""

    def __init__(self, starts: ExitStack) -> None:
        self._starts = starts

    @cached_property
    def _light(self) -> subprocess.Popen[str]:
        return self._starts.enter_context(_server(LIGHT))

    @cached_property
    def _heavy(self) -> subprocess.Popen[str]:
        return self._starts.enter_context(_server(HEAVY))

    def run(self, *arguments: object, cwd: Path, before: str = "") -> Finished:
        """`gen-audit arguments`, in a process of its own that first runs the lines `before`."""
        heavy = arguments[0] in RUNS_A_NETWORK and "find_spec" not in before
        server = self._heavy if heavy else self._light
        assert server.stdin is not None and server.stdout is not None
        case = {"arguments": [str(argument) for argument in arguments], "cwd": str(cwd), "before": before}
        server.stdin.write(json.dumps(case) + "\n")
        server.stdin.flush()
        return Finished(*json.loads(server.stdout.readline()))

    def done(self, *arguments: object, cwd: Path, before: str = "") -> str:
        """Standard output of a command that succeeds and has nothing to complain about."""
        finished = self.run(*arguments, cwd=cwd, before=before)
        assert (finished.returncode, complaints(finished.stderr)) == (0, "")
        return finished.stdout


@contextmanager
def _server(woken: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    asked = [sys.executable, "-c", SERVER.replace("{woken}", woken)]
    with subprocess.Popen(asked, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


@contextmanager
def forking() -> Iterator[Forks]:
    """Starts them, and ends them with the tests that use them."""
    with ExitStack() as starts:
        yield Forks(starts)
