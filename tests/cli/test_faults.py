"""What goes wrong around a run: it is killed, disturbed, or lacks a place. Files are whole, the old or the new ones."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from forks import Forks, complaints
from onnx import TensorProto, helper, numpy_helper
from places import EXAMPLE, REGRESSION, ROOT
from test_hostile_terminal import ended, network, started

from audit.render import FILES, STAGE

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
KILLED = """
import os, time
audited = os.getpid()
if os.fork() == 0:
    time.sleep({delay})
    if os.getppid() == audited:
        os.kill(audited, {number})
    os._exit(0)
"""
WHOLE = (b">", b"report.html and report.json have the rest.")  # how a page and its Markdown end
RENDER = ("render", EXAMPLE, "-o", "out", "-f", "html,json,md,junit,sarif")
REPORT = ("report", "model.onnx", "data", "-o", "out", "-f", "html,json", "-q")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a model and its data."""
    network(tmp_path / "model.onnx", "fc")
    (tmp_path / "data").mkdir()
    draws = np.random.default_rng(0)
    for split in ("train", "test"):
        x = draws.normal(size=(40, 4)).astype(np.float32)
        np.savez(tmp_path / "data" / f"{split}.npz", x=x, y=np.arange(40) % 3)
    return tmp_path


def earlier(out: Path) -> dict[str, bytes]:
    """An earlier report in place, and what it consists of."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "report.json").write_bytes(REGRESSION.read_bytes())
    (out / "report.html").write_text("<html>earlier</html>\n")
    return {file.name: file.read_bytes() for file in out.iterdir()}


def left(out: Path) -> dict[str, bytes]:
    """The report that is there; nothing else may be, but the folder of a run that could not tidy up."""
    names = {file.name for file in out.iterdir() if not file.name.startswith(STAGE)}
    assert names <= set(FILES.values())
    return {name: (out / name).read_bytes() for name in names}


def killed_at(forks: Forks, place: Path, delay: float, number: int, command: tuple[object, ...]) -> None:
    """Whenever the end comes, each file is the whole old or the whole new one."""
    old = earlier(place / "out")
    finished = forks.run(*command, cwd=place, before=KILLED.format(delay=delay, number=int(number)))
    assert finished.returncode in (SIGNALS[signal.Signals(number)], 0, -number)  # by the signal itself, at the very end
    now = left(place / "out")
    json.loads(now["report.json"])
    for name, content in now.items():
        assert content == old.get(name) or name.endswith((".json", ".sarif")) or content.rstrip().endswith(WHOLE)
    if finished.returncode != 0 and number != signal.SIGKILL:
        assert not list((place / "out").glob(f"{STAGE}*"))
    for stage in (place / "out").glob(f"{STAGE}*"):
        os.utime(stage, (0, 0))


def test_killed_with_an_earlier_report_in_place(forks: Forks, place: Path) -> None:
    draws = random.Random(1)
    for number in SIGNALS:
        killed_at(forks, place, draws.uniform(0, 2.5), number, RENDER)
    killed_at(forks, place, draws.uniform(0, 6), signal.SIGTERM, REPORT)
    forks.done(*RENDER, cwd=place)
    assert not list((place / "out").glob(f"{STAGE}*"))  # what a killed run left is gone


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_killed_at_200_moments(part: int, forks: Forks, place: Path) -> None:
    draws = random.Random(part)
    for _ in range(20):
        command, longest = draws.choice([(RENDER, 2.5), (REPORT, 8.0)])
        killed_at(forks, place, draws.uniform(0, longest), draws.choice(list(SIGNALS)), command)


def test_two_runs_into_one_folder(place: Path) -> None:
    pair = [started("render", report, "-o", "out", "-f", "json,md", cwd=place) for report in (EXAMPLE, REGRESSION)]
    for process in pair:
        assert process.communicate(timeout=120)[1] == b"" and process.returncode == 0
    names = {file.name for file in (place / "out").iterdir()}
    assert names == {"report.json", "report.md"}
    tasks = [json.loads(file.read_text())["model"]["task"] for file in (EXAMPLE, REGRESSION)]
    assert json.loads((place / "out" / "report.json").read_text())["model"]["task"] in tasks


def test_an_output_folder_that_vanishes(place: Path) -> None:
    with started("render", EXAMPLE, "-o", "out", "-f", "html,json", cwd=place) as process:
        while process.poll() is None:
            shutil.rmtree(place / "out", ignore_errors=True)
            for stage in place.glob(f"{STAGE}*"):
                shutil.rmtree(stage, ignore_errors=True)
            time.sleep(0.001)
        err = process.stderr.read() if process.stderr else b""
    assert process.returncode in (0, 2) and len(err.splitlines()) <= 1 and b"Traceback" not in err


ODD = ["with space 数 é", "-new\nline", "a'b\"c %s{x}$HOME"]


@pytest.mark.parametrize("name", ODD)
def test_odd_characters_in_every_path(name: str, forks: Forks, place: Path) -> None:
    (place / name).mkdir()
    model, data, out = (Path(".", name, kind) for kind in ("m.onnx", "data", "out"))
    (place / "model.onnx").rename(place / model)
    (place / "data").rename(place / data)
    quick = ("-f", "html,json", "-q", "--quick")
    given = [f"./{path}" for path in (model, data, out)]
    finished = forks.run("report", *given[:2], "-o", given[2], *quick, cwd=place)
    assert finished.returncode == 0 and "Traceback" not in finished.stderr
    assert (place / out / "report.html").exists()
    finished = forks.run("report", given[0], f"{given[1]}/none", "-o", given[2], *quick, cwd=place)
    assert finished.returncode == 2 and len(complaints(finished.stderr).splitlines()) == 1


CHANGES = """
import audit.run.pipeline as pipeline
before = pipeline.{step}
def step(*given, **more):
    import pathlib
    file = pathlib.Path({file!r})
    new = file.with_name("new")
    new.write_bytes(file.read_bytes())
    new.replace(file) if {replaced} else file.write_bytes(file.read_bytes())
    new.unlink(missing_ok=True)
    return before(*given, **more)
pipeline.{step} = step
"""


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize(
    ("file", "step", "remedy"),
    [
        ("model.onnx", "read_data", "audit it once it is finished"),
        ("data/test.npz", "fit", "audit the data once they are finished"),
        ("data/train.npz", "run_suite", "audit the data once they are finished"),
    ],
)
def test_a_file_that_is_written_to_while_it_is_read(
    forks: Forks, place: Path, file: str, step: str, remedy: str, replaced: bool
) -> None:
    finished = forks.run(*REPORT, cwd=place, before=CHANGES.format(file=file, step=step, replaced=replaced))
    assert finished.returncode == 2 and not (place / "out").exists()
    assert complaints(finished.stderr) == f"gen-audit: {file}: was written to while it was read; {remedy}.\n"


CUT = """
import audit.run.pipeline as pipeline
before = pipeline.fit
def step(*given, **more):
    import os
    os.truncate({file!r}, 4096)
    return before(*given, **more)
pipeline.fit = step
"""


@pytest.mark.parametrize("form", ["npz", "npy"])
def test_a_mapped_file_that_is_cut_short_is_one_sentence(forks: Forks, place: Path, form: str) -> None:
    shutil.rmtree(place / "data")
    (place / "data").mkdir()
    x, y = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32), np.arange(3000) % 3
    for split in ("train", "test"):
        if form == "npz":
            np.savez(place / "data" / f"{split}.npz", x=x, y=y)
        else:
            np.save(place / "data" / f"{split}_x.npy", x)
            np.save(place / "data" / f"{split}_y.npy", y)
    file = {"npz": "data/train.npz", "npy": "data/train_x.npy"}[form]
    finished = forks.run(*REPORT, "--quick", cwd=place, before=CUT.format(file=file))
    assert finished.returncode == 2 and not (place / "out").exists()
    said = f"gen-audit: {place / file}: was cut short while it was read; audit it once it is finished.\n"
    assert complaints(finished.stderr) == said


def test_a_division_that_ends_native_code_is_one_sentence(forks: Forks, place: Path) -> None:
    made = onnx.load(place / "model.onnx")
    made.graph.node[-1].output[0] = "before"
    made.graph.initializer.extend(
        numpy_helper.from_array(np.array(number), name) for name, number in (("least", -(2**63)), ("minus", -1))
    )
    made.graph.node.extend(
        (
            helper.make_node("Div", ["least", "minus"], ["quotient"]),
            helper.make_node("Cast", ["quotient"], ["shift"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["before", "shift"], [made.graph.output[0].name]),
        )
    )
    onnx.save(made, place / "model.onnx")
    finished = forks.run(*REPORT, cwd=place)
    assert finished.returncode == 2 and not (place / "out").exists()
    assert complaints(finished.stderr) == (
        "gen-audit: the model divides the smallest whole number by -1, or one by 0, which ends what runs it; mend it.\n"
    )


def test_what_is_no_data_may_be_written_to(forks: Forks, place: Path) -> None:
    (place / "data" / "train.log").write_text("begun")
    finished = forks.run(*REPORT, cwd=place, before=CHANGES.format(file="data/train.log", step="fit", replaced=False))
    assert finished.returncode == 0


def test_no_home(place: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "audit", "render", str(EXAMPLE), "-o", "out", "-f", "html,pdf,json"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    assert done.returncode == 0 and b"Traceback" not in done.stderr


def mounted(script: str, place: Path) -> tuple[int, bytes]:
    """A shell command where file systems may be mounted that nobody else sees."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


AUDIT = f"{sys.executable} -m audit render {EXAMPLE} -o out -f html,json"


def test_a_full_disk_is_one_sentence(place: Path) -> None:
    (place / "out").mkdir()
    code, err = mounted(f"mount -t tmpfs -o size=32k none out && {AUDIT}; code=$?; ls -A out >&2; exit $code", place)
    assert code == 2 and err.splitlines() == [err.strip()] and b"No space left on device" in err


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_no_place_for_temporary_files(folder: str, place: Path) -> None:
    if Path(sys.executable).is_relative_to(folder):
        pytest.skip(f"this Python itself lies in {folder}")
    here = tempfile.mkdtemp(dir="/var/tmp")
    shutil.copy(EXAMPLE, place / "r.json")
    script = f"mount --bind . {here} && mount -t tmpfs -o ro none {folder} && cd {here}"
    code, err = mounted(f"{script} && {AUDIT.replace(str(EXAMPLE), 'r.json')}", place)
    os.rmdir(here)
    assert (code, err) == (0, b"") and (place / "out" / "report.html").exists()


def test_a_read_only_file_system_is_one_sentence_before_any_work(place: Path) -> None:
    (place / "out").mkdir()
    code, err = mounted(f"mount -t tmpfs -o ro none out && {AUDIT}", place)
    assert code == 2 and len(err.splitlines()) == 1
    assert err.startswith(b"gen-audit: out: cannot be written to (Read-only file system); name another folder")


DROPPED = """
import audit.render, os, signal
class Gone:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
before = audit.render.check_writable
def step(folder):
    Gone()
    before(folder)
audit.render.check_writable = step
"""


def test_a_signal_that_comes_where_python_drops_errors_is_a_signal(forks: Forks, place: Path) -> None:
    finished = forks.run(*RENDER, cwd=place, before=DROPPED)
    assert finished.returncode == 143 and finished.stderr.startswith("gen-audit: interrupted; ")
    assert len(finished.stderr.splitlines()) == 1 and not list(place.glob(f"{STAGE}*"))


def test_a_signal_twice_is_a_signal(place: Path) -> None:
    with started(*RENDER, cwd=place) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        err = process.communicate(timeout=120)[1]
    assert process.returncode in (143, -15, 0) and b"Traceback" not in err
    assert ended("explain", "kappa", cwd=place)[0] == 0
