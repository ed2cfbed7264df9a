"""gen-audit as a process, many times over: one Python imports the command line once and forks for each command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

SERVER = """
import json, os, sys, tempfile
import numpy, pydantic  # what the commands need of others is imported once
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


STAGE = re.compile(
    r"^(plan|doctor|forward|capture|gap|calibration|consequences|duality|flatness|fisher|sensitivity|hygiene|checks): "
    r".*\n",
    re.MULTILINE,
)


def complaints(stderr: str) -> str:
    """What a command says on stderr, but for the lines that tell how far it is."""
    return STAGE.sub("", stderr)


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Forks:
    """The Python that forks."""

    server: subprocess.Popen[str]

    def run(self, *arguments: object, cwd: Path, before: str = "") -> Finished:
        """`gen-audit arguments`, in a process of its own that first runs the lines `before`."""
        assert self.server.stdin is not None and self.server.stdout is not None
        case = {"arguments": [str(argument) for argument in arguments], "cwd": str(cwd), "before": before}
        self.server.stdin.write(json.dumps(case) + "\n")
        self.server.stdin.flush()
        return Finished(*json.loads(self.server.stdout.readline()))

    def done(self, *arguments: object, cwd: Path, before: str = "") -> str:
        """Standard output of a command that succeeds and has nothing to complain about."""
        finished = self.run(*arguments, cwd=cwd, before=before)
        assert (finished.returncode, complaints(finished.stderr)) == (0, "")
        return finished.stdout


@contextmanager
def forking() -> Iterator[Forks]:
    """Starts it, and ends it with the tests that use it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    asked = [sys.executable, "-c", SERVER]
    with subprocess.Popen(asked, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield Forks(server)
        assert server.stdin is not None
        server.stdin.close()
