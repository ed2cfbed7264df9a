"""A data folder is a stranger's: what lies in it may describe the data, and neither run code nor judge itself."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from places import EXAMPLE

from audit.cli import main
from audit.errors import DataError, UsageError
from audit.report.conduct import Plan
from audit.run.partial import Partial
from audit.settings import KINDS, Settings, flag
from audit.settings.config import DESCRIBES_DATA

X = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float32)
VALUES = {bool: "true", int: "3", float: "0.5", str: '"evil"'}


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("it_ran",)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs a command in a folder with a model, a pickle and data; its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["f"], transB=1)],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
    Path("evil.pt").write_bytes(pickle.dumps(Bomb(), 2))
    torch.save({"w": torch.ones(3, 4)}, "weights.pt")
    Path("data").mkdir()
    Path("data/evil.py").write_text("import os\nos.mkdir('it_ran')\n")
    for split in ("train", "test"):
        np.savez(f"data/{split}.npz", x=X, y=np.arange(12) % 3)

    def ends(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gen-audit", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not Path("it_ran").exists()
        return int(caught.value.code or 0), capsys.readouterr().err

    return ends


Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize("where", ["data/gen-audit.toml", "gen-audit.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("evil.pt", "trust-pickle = true"),
        ("evil.pt", "[data]\ntrust_pickle = 'yes'"),
        ("weights.pt", "arch = 'data/evil.py:factory'"),
        ("weights.pt", "Arch = 'data/evil.py:factory'"),
    ],
)
def test_no_file_that_is_merely_found_runs_code(run: Run, where: str, model: str, line: str) -> None:
    Path(where).write_text(f"[tool.gen-audit]\n{line}" if where == "pyproject.toml" and line[0] != "[" else line)
    code, said = run("report", model, "data", "-f", "json")
    assert code == 2 and len(said.splitlines()) == 1
    if where == "data/gen-audit.toml" and not line.startswith("Arch"):
        key = "trust" if model == "evil.pt" else "arch"
        assert said.startswith(f"gen-audit: {where}: sets {key}") and "--config" in said


@pytest.mark.parametrize("name", sorted(KINDS.keys() - DESCRIBES_DATA))
def test_whatever_does_not_describe_the_data_is_named(run: Run, name: str) -> None:
    Path("data/gen-audit.toml").write_text(f"{name} = {VALUES[KINDS[name].plain]}\n")
    code, said = run("report", "model.onnx", "data", "-f", "json")
    assert (code, said) == (
        2,
        f"gen-audit: data/gen-audit.toml: sets {name}, but a file found in a data folder may only describe the data "
        f"({', '.join(sorted(DESCRIBES_DATA))}); give {flag(name)} yourself, or name your own file with --config.\n",
    )


def test_the_working_folder_given_as_data_is_a_data_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy("model.onnx", "data/model.onnx")
    for name, text in (("gen-audit.toml", "memory = '1GB'"), ("pyproject.toml", "[tool.gen-audit]\nmemory = '1GB'")):
        Path("data", name).write_text(text)
        monkeypatch.chdir("data")
        code, said = run("report", "model.onnx", ".", "-f", "json")
        assert code == 2 and said.startswith(f"gen-audit: {name}: sets memory, but a file found in a data folder")
        monkeypatch.chdir("..")
        Path("data", name).unlink()


@pytest.mark.parametrize("name", ["ARCH", "TRUST_PICKLE"])
def test_no_variable_runs_code(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"GEN_AUDIT_{name}", {"ARCH": "data/evil.py:factory", "TRUST_PICKLE": "1"}[name])
    code, said = run("report", "evil.pt", "data", "-f", "json")
    assert code == 2 and said.startswith(f"gen-audit: GEN_AUDIT_{name}: sets {name.lower()}, which runs code")


def test_a_named_file_may_run_code_and_the_command_line_may_refuse_it(run: Run) -> None:
    Path("mine.toml").write_text("trust-pickle = true\n")
    code, said = run("report", "evil.pt", "data", "--config", "mine.toml", "--no-trust-pickle")
    assert code == 2 and "pass --trust-pickle if you trust its origin" in said
    with pytest.raises(AssertionError):  # the check for it_ran
        run("report", "evil.pt", "data", "--config", "mine.toml")


def test_a_policy_beside_the_data_does_not_judge_by_itself(run: Run) -> None:
    Path("data/gen-audit.toml").write_text("[policy.gap.test_error]\nmax = 1.0\n")
    code, said = run("check", "model.onnx", "data", "-q")
    assert (code, said) == (
        2,
        "gen-audit: data/gen-audit.toml: holds a [policy], and rules that come with the data do not judge the model "
        "by themselves; pass --policy data/gen-audit.toml if they are yours, or remove them.\n",
    )
    assert run("check", "model.onnx", "data", "-q", "--policy", "data/gen-audit.toml")[0] == 0
    Path("gen-audit.toml").write_text("[policy.gap.test_error]\nmax = 0.0\n")
    assert run("check", "model.onnx", "data", "-q", "--policy", "gen-audit.toml")[0] == 1


def test_no_link_leaves_the_folder_that_was_given(run: Run) -> None:
    Path("secret.toml").write_text("scale = 2\n")
    Path("data/gen-audit.toml").symlink_to("../secret.toml")
    code, said = run("report", "model.onnx", "data", "-f", "json")
    assert code == 2 and "outside the data folder, and is not followed" in said
    Path("reports").mkdir()
    Path("reports/report.json").symlink_to(EXAMPLE)
    for command in ("history", "overview"):
        code, said = run(command, "reports", "-o", "out")
        assert code == 2 and "outside the folder of reports, and is not followed" in said


@pytest.fixture
def unfinished(tmp_path: Path) -> Partial:
    """An audit that was interrupted, beside a file of its owner's."""
    (tmp_path / "mine.json").write_text("{}")
    partial = Partial(tmp_path / "out.partial", resume=True)
    partial.begin("m", "d", Settings(), Plan(stages=[]), {})
    partial.keep_tails({})
    return partial


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 10**5, b"9" * 5000, b"{}"])
def test_a_damaged_unfinished_audit_is_a_sentence(unfinished: Partial, content: bytes) -> None:
    (unfinished.folder / "about.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"about\.json.* leave --resume out to begin anew"):
        unfinished.plan("m", "d", Settings())


def test_an_unfinished_audit_opens_no_link_and_no_pipe(unfinished: Partial, tmp_path: Path) -> None:
    about = unfinished.folder / "about.json"
    about.unlink()
    about.symlink_to("../mine.json")
    with pytest.raises(DataError, match="outside the unfinished audit, and is not followed"):
        unfinished.plan("m", "d", Settings())
    about.unlink()
    os.mkfifo(about)
    with pytest.raises(UsageError, match="no ordinary file; leave --resume out"):
        unfinished.plan("m", "d", Settings())


def test_an_unfinished_audit_writes_through_no_link(unfinished: Partial, tmp_path: Path) -> None:
    (unfinished.folder / ".tails.json").symlink_to("../mine.json")
    unfinished.keep_tails({})
    assert (tmp_path / "mine.json").read_text() == "{}"
    (tmp_path / "other.partial").symlink_to(unfinished.folder)
    with pytest.raises(UsageError, match=r"other\.partial: is a link, where an unfinished audit is kept"):
        Partial(tmp_path / "other.partial", resume=False)
