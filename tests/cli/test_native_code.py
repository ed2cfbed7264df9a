"""What runs in native code, and does not come back to Python, ends all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from forks import Forks, complaints
from test_hostile_terminal import network

LONG = """
import audit.cli, audit.model, numpy, os, signal, threading
audit.cli.GRACE = 0.2
audit.cli.LONGEST = 0.2
before = audit.model.detect
def detect(path):
    {meanwhile}
    try:
        numpy.linalg.svd(numpy.random.default_rng(0).normal(size=(6000, 6000)))
    finally:
        print("came back")
    return before(path)
audit.model.detect = detect
"""
KILL = "threading.Timer(0.1, os.kill, (os.getpid(), {number})).start()"


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_a_signal_ends_a_call_of_native_code(number: int, code: int, forks: Forks, tmp_path: Path) -> None:
    network(tmp_path / "model.onnx", "fc")
    before = LONG.format(meanwhile=KILL.format(number=number)).replace("LONGEST = 0.2", "LONGEST = 60")
    finished = forks.run("layers", "model.onnx", cwd=tmp_path, before=before)
    assert (finished.returncode, finished.stdout) == (code, "")
    assert complaints(finished.stderr) == "gen-audit: interrupted; no report is left half-written\n"


def test_one_step_of_reading_that_computes_for_long_is_a_sentence(forks: Forks, tmp_path: Path) -> None:
    network(tmp_path / "model.onnx", "fc")
    finished = forks.run("layers", "model.onnx", cwd=tmp_path, before=LONG.format(meanwhile="pass"))
    assert (finished.returncode, finished.stdout) == (2, "")
    assert complaints(finished.stderr) == (
        "gen-audit: one step of reading a file, or of trying the model out, takes over 0.2 seconds; give a smaller "
        "one, or one that is whole.\n"
    )


def test_a_signal_that_native_code_lets_through_leaves_as_before(forks: Forks, tmp_path: Path) -> None:
    network(tmp_path / "model.onnx", "fc")
    calm = LONG.format(meanwhile=KILL.format(number=15)).replace("size=(6000, 6000)", "size=(9, 9)")
    waits = calm.replace('print("came back")', "threading.Event().wait(60)").replace("LONGEST = 0.2", "LONGEST = 60")
    finished = forks.run("layers", "model.onnx", cwd=tmp_path, before=waits)
    assert finished.returncode == 143 and len(finished.stderr.splitlines()) == 1
