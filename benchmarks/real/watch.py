"""Runs a command in a process group of its own, ends the group at a limit, and says what the command took."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from resource import struct_rusage

ROOT = Path(__file__).parent.parent.parent
PAUSE = 0.05


@dataclass(frozen=True)
class Run:
    """What a command took and how it ended."""

    wall: float
    cpu: float  # seconds of all its threads
    peak: int  # bytes resident at the highest, libraries included
    code: int | None  # None: it was ended at its limit
    out: Path
    err: Path

    @property
    def finished(self) -> bool:
        """Whether it came to a good end by itself."""
        return self.code == 0

    @property
    def complaint(self) -> str:
        """How it went wrong, in a line."""
        if self.code is None:
            return f"ended after {self.wall:.0f} s"
        lines = self.err.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"exit code {self.code}: {lines[-1].strip() if lines else 'nothing on stderr'}"


def watch(arguments: Sequence[str], log: Path, limit: float, threads: int) -> Run:
    """Run `python ARGUMENTS…` from the checkout for at most `limit` seconds; its words go to LOG.out and LOG.err."""
    log.parent.mkdir(parents=True, exist_ok=True)
    out, err = log.with_name(f"{log.name}.out"), log.with_name(f"{log.name}.err")
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    with out.open("wb") as words, err.open("wb") as complaints:
        begin = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **counts},
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=complaints,
            start_new_session=True,
        )
        try:
            status, usage, peak = _wait(child.pid, begin + limit)
            wall = time.perf_counter() - begin
            child.returncode = os.waitstatus_to_exitcode(status)  # it is reaped already, unknown to Popen
        finally:
            with suppress(ProcessLookupError):  # what it left running, or itself if we are interrupted
                os.killpg(child.pid, signal.SIGKILL)
    code = None if wall >= limit else child.returncode
    return Run(wall, usage.ru_utime + usage.ru_stime, peak, code, out, err)


def _wait(pid: int, deadline: float) -> tuple[int, struct_rusage, int]:
    """Exit status, usage and peak memory of the process, which is killed with its group at the deadline."""
    peak = 0
    while True:
        peak = max(peak, _peak(pid))
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage, peak or usage.ru_maxrss  # where there is no /proc: macOS, which counts in bytes
        if time.perf_counter() >= deadline:
            os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            return status, usage, peak or usage.ru_maxrss
        time.sleep(PAUSE)


def _peak(pid: int) -> int:
    """Bytes at the highest so far; not `ru_maxrss` on Linux, where a child starts with that of its parent."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    return 0
