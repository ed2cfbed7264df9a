"""The command line as a user meets it: a process with exit codes, files, and a terminal or none."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from forks import Forks, complaints
from formats import QUICK, data_of, example_of, trained, write_onnx
from places import ROOT

SAMPLE = (str(ROOT / "samples" / "healthy.onnx"), str(ROOT / "samples" / "mnist"))
FLAGS = [part for key, value in QUICK.items() for part in (f"--{key.replace('_', '-')}", str(value))]
ENDINGS = ("html", "pdf", "json", "md")
BLOCKED = (
    "import sys\n"
    "class Blocked:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.split('.')[0] in ('torch', 'onnx', 'onnx2torch', 'onnxruntime'):\n"
    "            raise ImportError(f'{name} is not installed here')\n"
    "sys.meta_path.insert(0, Blocked())\n"
)
"""A Python in which torch and onnx cannot be had."""


def command(*arguments: object, before: str = "") -> list[str]:
    """`gen-audit arguments`, in a process of its own that first runs the lines `before`."""
    lines = f"{before}import sys; sys.argv[0] = 'gen-audit'\nfrom audit.cli import main\nmain()\n"
    return [sys.executable, "-c", lines, *map(str, arguments)]


def run(*arguments: object, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    asked = command(*arguments, before=before)
    return subprocess.run(asked, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


def done(*arguments: object, cwd: Path, before: str = "") -> str:
    """Standard output of a command that succeeds and has nothing to complain about."""
    finished = run(*arguments, cwd=cwd, before=before)
    assert (finished.returncode, complaints(finished.stderr)) == (0, "")
    return finished.stdout


README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = {line.split()[1]: line for line in re.findall(r"^gen-audit .*\S(?= +#)", README, re.MULTILINE)}


def from_readme(name: str, cwd: Path, *more: str) -> str:
    """What one of the README's commands prints, on the model and the data in this folder."""
    places = {"MODEL": "model.onnx", "DATA": "data"}
    return done(*(places.get(word, word) for word in shlex.split(COMMANDS[name])[1:]), *more, cwd=cwd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.onnx, data/ and, as the README says, the report on them in out/."""
    path = tmp_path_factory.mktemp("cli")
    data_of("relu").save(path / "data")
    write_onnx(trained("relu"), example_of("relu"), path / "model.onnx", opset=13)
    (path / "printed").write_text(from_readme("report", path, *FLAGS))
    return path


def test_a_report_says_what_it_found_and_where_it_is(folder: Path) -> None:
    printed = (folder / "printed").read_text().splitlines()
    report = json.loads((folder / "out" / "report.json").read_text())
    assert printed[0] == "model.onnx: classification, 207 parameters, 3 dense layers measured, 0 layers passed by"
    assert printed[1] == "data: npz, 110 train and 60 test samples"
    assert re.fullmatch(r"agrees with onnxruntime to \d\.\de-\d\d on 64 samples \(tolerance \d\.\de-\d\d\)", printed[2])
    line = report["bottom_line"]
    assert printed[3:5] == [f"bottom line: {line['level']}. {line['sentence']}", f"what to do next: {line['advice']}"]
    assert printed[5].startswith(
        f"loss   train {report['gap']['train_loss']:.4g}, test {report['gap']['test_loss']:.4g}"
    )
    assert printed[-4:] == [f"out/report.{ending}" for ending in ENDINGS]
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(f"report.{end}" for end in ENDINGS)


def test_the_same_input_gives_the_same_bytes_and_quiet_is_silent(folder: Path, forks: Forks) -> None:
    first = (folder / "out" / "report.json").read_bytes()
    asked = ["report", "model.onnx", "data", "-o", "again", "-f", "json", "-q", *FLAGS]
    assert forks.done(*asked, cwd=folder) == ""
    second = (folder / "again" / "report.json").read_bytes()
    assert _without_the_moment(first) == _without_the_moment(second)


def _without_the_moment(content: bytes) -> bytes:
    """The bytes but for when it was made, how long that took or should take, and the command, which names a folder."""
    text = re.sub(r'"(speed|seconds)": [^\n]*', r'"\1": 0', content.decode())
    text = re.sub(r'"(created|command)": "[^\n]*"', r'"\1": ""', text)
    return re.sub(r'"timings": \{[^}]*\}', '"timings": {}', text).encode()


def test_the_report_fits_the_published_schema(folder: Path) -> None:
    schema = json.loads(from_readme("schema", folder))
    jsonschema.Draft202012Validator.check_schema(schema)
    report = json.loads((folder / "out" / "report.json").read_text())
    jsonschema.validate(report, schema)
    report["gap"]["train_loss"] = "small"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)


def test_pages_are_drawn_again_elsewhere_without_torch(folder: Path, tmp_path: Path) -> None:
    report = folder / "out" / "report.json"
    printed = done("render", report, "-o", "pages", "-f", "html,md,json", cwd=tmp_path, before=BLOCKED)
    assert sorted(printed.split()) == ["pages/report.html", "pages/report.json", "pages/report.md"]
    for name in ("report.html", "report.json"):
        assert (tmp_path / "pages" / name).read_bytes() == (folder / "out" / name).read_bytes()


def test_short_pages_have_no_appendix(folder: Path, forks: Forks, tmp_path: Path) -> None:
    forks.done("render", folder / "out" / "report.json", "-o", "pages", "-f", "html,json", "--short", cwd=tmp_path)
    page, whole = ((place / "report.html").read_text() for place in (tmp_path / "pages", folder / "out"))
    assert 'id="appendix"' in whole and 'id="appendix"' not in page and 'id="sign-off"' in page
    assert (tmp_path / "pages" / "report.json").read_bytes() == (folder / "out" / "report.json").read_bytes()


def test_layers_as_a_table_and_as_json(folder: Path, forks: Forks) -> None:
    table = from_readme("layers", folder)
    assert re.findall(r"^ +(\w+) +(\w+) +(\d+ → \d+) +1 +measured", table, re.MULTILINE) == [
        ("fc1", "gemm", "13 → 9"),
        ("fc2", "gemm", "9 → 6"),
        ("fc3", "gemm", "6 → 3"),
    ]
    listed = json.loads(forks.done("layers", SAMPLE[0], "--json", cwd=folder))
    sizes = [(layer["name"], layer["in_features"], layer["out_features"]) for layer in listed["layers"]]
    assert sizes == [("fc1", 784, 30), ("fc2", 30, 30), ("fc3", 30, 10)]
    assert listed["passed_by"] == []


@pytest.mark.parametrize(("given", "taken"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_threads_wait_asleep_unless_told_otherwise(tmp_path: Path, monkeypatch, given, taken) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    told = "import atexit, os; atexit.register(lambda: print(os.environ['GOMP_SPINCOUNT']))\n"
    assert done("--help", cwd=tmp_path, before=told).split()[-1] == taken


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "nowhere.onnx", "data"), "gen-audit: nowhere.onnx: there is no such file"),
        (("report", "model.onnx", "data", "-f", "docx"), "gen-audit: -f: 'docx' names no format"),
        (("render", "nowhere.json"), "gen-audit: nowhere.json: cannot be read"),
        (("report", "model.onnx"), "Missing argument 'DATA'"),
        (("report", "model.onnx", "data", "--nonsense"), "No such option: --nonsense"),
        (("dance",), "No such command 'dance'"),
    ],
)
def test_what_the_user_can_put_right_is_2(arguments: tuple[str, ...], words: str, folder: Path, forks: Forks) -> None:
    finished = forks.run(*arguments, cwd=folder)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert words in finished.stderr and "Traceback" not in finished.stderr
    assert not (folder / "gen-audit-report").exists()


def test_our_own_fault_is_3_and_asks_to_be_reported(forks: Forks, tmp_path: Path) -> None:
    finished = forks.run(
        "schema", cwd=tmp_path, before="import audit.report.fields; del audit.report.fields.schema_of\n"
    )
    assert (finished.returncode, finished.stdout) == (3, "")
    assert "Traceback" in finished.stderr
    assert re.search(
        r"gen-audit: this is a fault of gen-audit [\d.]+\w* itself, not of your files; please report it",
        finished.stderr,
    )


def test_an_interrupted_audit_is_130_shows_progress_on_a_terminal_and_writes_nothing(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    asked = command("report", *SAMPLE, "-o", "out")
    with subprocess.Popen(asked, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=end) as process:
        os.close(end)
        shown = _read_until(terminal, rb"(Capturing|Measuring|Checking) ")  # a stage may pass before it is drawn
        process.send_signal(signal.SIGINT)
        shown += _read_until(terminal, None)
        printed, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert (process.returncode, printed) == (130, b"")
    assert b"Traceback" not in shown and b"Aborted" not in shown
    assert shown.count(b"gen-audit: interrupted; no report is left half-written") == 1
    kept = b"gen-audit: what was measured is kept in out.partial; the same command with --resume goes on" in shown
    assert list(tmp_path.iterdir()) == ([tmp_path / "out.partial"] if kept else [])


@pytest.mark.slow
def test_terminated_twins_are_kept_and_the_same_command_goes_on(folder: Path, tmp_path: Path) -> None:
    stop = "import os, audit.twins.make as m\nwrite = m.write_twins\n"
    stop += "m.write_twins = lambda folder, made: (write(folder, made), os.kill(os.getpid(), 15))\n"
    asked = ["twins", folder / "model.onnx", folder / "data", "-o", "kept", "--kinds", "plain", "--count", "1", "-q"]
    stopped = run(*asked, cwd=tmp_path, before=stop)
    assert (stopped.returncode, stopped.stdout) == (143, "")
    assert complaints(stopped.stderr).splitlines()[-1] == (
        "gen-audit: what was trained is kept in kept; the same command goes on from there."
    )
    assert (tmp_path / "kept" / "twins.json").exists()


def test_a_terminated_audit_is_143_and_goes_on_with_resume(folder: Path, forks: Forks, tmp_path: Path) -> None:
    stop = "import os, signal, audit.run.progress as p\nsay = p.LineProgress._say\n"
    stop += "p.LineProgress._say = lambda s, l: os.kill(os.getpid(), 15) if l.startswith('fisher') else say(s, l)\n"
    asked = ["report", folder / "model.onnx", folder / "data", "-o", "out", "-f", "json", *FLAGS]
    stopped = forks.run(*asked, cwd=tmp_path, before=stop)
    assert (stopped.returncode, stopped.stdout) == (143, "")
    assert complaints(stopped.stderr) == (
        "gen-audit: interrupted; no report is left half-written\n"
        "gen-audit: what was measured is kept in out.partial; the same command with --resume goes on from there.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    other = forks.run(*asked, "--resume", "--seed", "7", cwd=tmp_path)
    assert (other.returncode, other.stderr.count("\n")) == (2, 1) and "--seed was 0 then and is 7 now" in other.stderr
    resumed = forks.run(*asked, "--resume", cwd=tmp_path)
    assert resumed.returncode == 0 and "flatness: " not in resumed.stderr and "sensitivity: " in resumed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _read_until(terminal: int, words: bytes | None, patience: float = 120) -> bytes:
    """What appears on the terminal until something like these words does, or until it is closed."""
    shown, end = b"", time.monotonic() + patience
    while words is None or not re.search(words, shown):
        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], shown[-500:]
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux says so when the other side is gone
            part = b""
        if not part:
            assert words is None, shown[-500:]
            break
        shown += part
    return shown


def test_every_command_of_the_readme_is_tried_here(folder: Path) -> None:
    assert {"report", "layers", "render", "schema"} <= set(COMMANDS)
    assert from_readme("render", folder, "-o", "pages").strip() == "pages/report.html"


@pytest.mark.slow
def test_the_readmes_example_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    (line, shown) = re.search(r"^\$ gen-audit (report .*)\n((?:.+\n)+?)```", README, re.MULTILINE).groups()
    printed = done(*line.split(), cwd=tmp_path)
    rounding = re.compile(r"to \de?[\d.]*e-\d\d on")  # differs between processors
    assert rounding.sub("to … on", printed) == rounding.sub("to … on", shown)
