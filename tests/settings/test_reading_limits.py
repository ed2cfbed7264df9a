"""What reading may take of memory: the limit of the system, and what it is measured from."""

from __future__ import annotations

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
