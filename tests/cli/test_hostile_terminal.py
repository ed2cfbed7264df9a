"""What strangers call things cannot move a cursor, and what the machine lacks is said in one sentence."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from places import EXAMPLE, ROOT

from audit.cli.terminal import printable

EVIL = "fc\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


def network(path: Path, name: str, op: str = "Gemm") -> None:
    weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", f"{name}.weight"], ["f"], name=name, **({"transB": 1} if op == "Gemm" else {}))],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weights, f"{name}.weight")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def started(*arguments: object, cwd: Path, **options: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **options.pop("env", {})}  # type: ignore[dict-item]
    command = [sys.executable, "-m", "audit", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, cwd=cwd, env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def ended(*arguments: object, cwd: Path, **options: object) -> tuple[int, bytes, bytes]:
    with started(*arguments, cwd=cwd, **options) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, out or b"", err or b""


def test_control_characters_are_shown_not_obeyed() -> None:
    assert printable("a\tb\nc é 数 \u00a0") == "a\tb\nc é 数 \u00a0"
    for text in (EVIL, "\x00\x7f\x85\u2028\ud800\U000e0001"):
        assert all(letter.isprintable() for letter in printable(text))
    assert json.loads(printable(json.dumps(EVIL + "\U000e0001", ensure_ascii=False))) == EVIL + "\U000e0001"


@pytest.mark.parametrize(
    "arguments",
    [
        ("layers", "evil.onnx"),
        ("layers", "evil.onnx", "--json"),
        ("layers", "strange.onnx"),
        ("layers", f"{EVIL}.onnx"),
    ],
)
def test_names_from_a_model_do_not_reach_the_terminal_raw(arguments: tuple[str, ...], tmp_path: Path) -> None:
    network(tmp_path / "evil.onnx", EVIL)
    network(tmp_path / "strange.onnx", "fc", op=EVIL)
    _, out, err = ended(*arguments, cwd=tmp_path)
    assert out + err
    for byte in (b"\x1b]", b"\x1b[2J", b"\x07", b"\xc2\x9b", b"\xe2\x80\xae", b"\r"):
        assert byte not in out + err


LINE = "\n::error::forged\n"


@pytest.mark.parametrize("arguments", [("check", "report.json"), ("history", "."), ("layers", "evil.onnx")])
def test_a_name_begins_no_line_of_its_own(arguments: tuple[str, ...], tmp_path: Path) -> None:
    report = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    report["data"]["path"] = f"data{LINE}"
    report["model"]["parity"]["against"] += LINE
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    network(tmp_path / "evil.onnx", f"fc{LINE}")
    _, out, err = ended(*arguments, cwd=tmp_path)
    assert b"::error::forged" in out
    assert not [line for line in (out + err).decode().splitlines() if line.strip().startswith("::")]


def test_a_plan_from_a_stranger_does_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    report = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    report["plan"] = {"stages": [{"name": EVIL, "form": "sampled", "why": f"[bold]{EVIL}"}]}
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    network(tmp_path / "model.onnx", "fc")
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        np.savez(tmp_path / "data" / f"{split}.npz", x=np.eye(4, dtype=np.float32), y=np.arange(4) % 3)
    asked = ("report", "model.onnx", "data", "--plan", "report.json", "--dry-run")
    for arguments in (asked, (*asked, "--json")):
        code, out, err = ended(*arguments, cwd=tmp_path)
        assert (code, err) == (0, b"") and b"owned" in out
        assert not any(byte in out for byte in (b"\x1b", b"\x07", b"\xc2\x9b", b"\xe2\x80\xae", b"\r"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_knows_few_letters_is_no_fault(encoding: str, tmp_path: Path) -> None:
    code, out, err = ended("explain", "kappa", cwd=tmp_path, env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert (code, err) == (0, b"") and out
    code, _, err = ended("report", "数.onnx", "d", cwd=tmp_path, env={"PYTHONIOENCODING": encoding})
    assert code == 2 and b"there is no such file" in err


def test_a_closed_stderr_is_no_fault(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m audit report none.onnx data 2>&-"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 2


def test_a_limit_on_files_is_one_sentence(tmp_path: Path) -> None:
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # noqa: E731
    code, _, err = ended("render", EXAMPLE, "-o", "out", "-f", "json", cwd=tmp_path, preexec_fn=limit)
    assert (code, len(err.splitlines())) == (2, 1) and b"File too large" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_end_from_outside_leaves_nothing_behind(number: int, code: int, tmp_path: Path) -> None:
    with started("render", EXAMPLE, "-o", "out", "-f", "pdf,html,json", cwd=tmp_path) as process:
        begin = time.monotonic()
        while not list(tmp_path.iterdir()) and time.monotonic() - begin < 60:
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (code, b"gen-audit: interrupted; no report is left half-written\n")
    assert list(tmp_path.iterdir()) == []
