"""What reading may take of memory: the limit of the system, and what it is measured from."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from audit.settings.limits import memory_limited, one_budget


@pytest.mark.skipif(sys.platform != "linux", reason="the system says nowhere else what a process takes")
def test_attempts_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one attempt leaves behind is not added to the room of the next."""
    limits: list[int] = []
    monkeypatch.setattr("resource.setrlimit", lambda kind, limit: limits.append(limit[0]))
    taken = iter((1 << 30, 2 << 30, 3 << 30))
    monkeypatch.setattr("audit.settings.limits._taken", lambda: next(taken))
    with one_budget():
        for _ in range(2):
            with memory_limited("1GB"):
                pass
    assert limits[0] == limits[2]
    with memory_limited("1GB"):
        pass
    assert limits[4] - limits[0] == 1 << 30


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have nothing to give back")
def test_what_was_freed_between_what_is_kept_goes_back_to_the_system() -> None:
    """In a process of its own: what this one holds must not change what is measured."""
    words = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True).stdout.split()
    before, after = map(int, words)
    assert before - after > 50 << 20


FREED = """
from pathlib import Path
from audit.settings.limits import give_back
def resident():
    return next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").open() if line.startswith("VmRSS"))
pieces = [bytearray(100_000) for _ in range(1000)]  # too small to be taken from the system one by one
kept = pieces[::10]
del pieces
before = resident()
give_back()
print(before, resident())
"""
