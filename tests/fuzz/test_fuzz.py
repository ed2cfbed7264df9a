"""A short round of `make fuzz` for every reader, with numbers that the long rounds do not reach."""

from __future__ import annotations

import subprocess
import sys

import pytest
from places import ROOT

from fuzz.targets import TARGETS

FIRST, INPUTS = 10**9, 25
GROUPS = [sorted(TARGETS)[start::4] for start in range(4)]  # those of a group share a process: importing takes longest
ROUND = "import sys, torch; torch.set_num_threads(1); from fuzz.rounds import broken\n"


@pytest.mark.parametrize("names", GROUPS, ids=" ".join)
def test_a_damaged_file_ends_in_a_report_or_in_a_sentence(names: list[str]) -> None:
    code = f"{ROUND}print([each for name in {names!r} for each in broken(name, range({FIRST}, {FIRST + INPUTS}))])"
    places = f"{ROOT}/tests:{ROOT}/tests/support:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": places, "OMP_NUM_THREADS": "1", "PATH": ""},
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr[-2000:] + done.stdout
