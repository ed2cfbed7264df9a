"""The exit codes of every command, as a process.

0 done, 1 a gate failed, 2 could not run, 3 our own fault, 130 interrupted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forks import Forks
from reports import EXAMPLE
from test_cli import ROOT, SAMPLE

from audit.cli import COMMANDS

# A command that reaches its own work, and a module that it needs there.
ASKED = {
    "report": (("report", *SAMPLE, "-q"), "audit.run.pipeline"),
    "twins": (("twins", *SAMPLE, "-q"), "audit.twins.make"),
    "check": (("check", EXAMPLE), "audit.policy.judge"),
    "compare": (("compare", EXAMPLE, EXAMPLE), "audit.compare.compare"),
    "history": (("history", EXAMPLE.parent), "audit.compare.history.timeline"),
    "overview": (("overview", EXAMPLE.parent), "audit.compare.history"),
    "verify": (("verify", EXAMPLE, *SAMPLE), "audit.report.numbers"),
    "init": (("init",), "audit.policy.parse"),
    "config": (("config",), "audit.policy.parse"),
    "layers": (("layers", SAMPLE[0]), "audit.run.list_layers"),
    "render": (("render", EXAMPLE), "audit.render.pdf"),
    "explain": (("explain", "kappa"), "audit.render.cards"),
    "schema": (("schema",), "audit.report.fields"),
}
UNUSABLE = {
    "report": ("report", "model.onnx", "data", "-f", "docx"),
    "twins": ("twins", "model.onnx", "data", "--kinds", "nothing-of-ours"),
    "check": ("check", "nowhere.json"),
    "compare": ("compare", "nowhere.json", "nowhere.json"),
    "history": ("history", "nowhere"),
    "overview": ("overview", "nowhere"),
    "verify": ("verify", "nowhere.json", "model.onnx", "data"),
    "init": ("init", "nowhere"),
    "config": ("config", "--config", "nowhere.toml"),
    "layers": ("layers",),
    "render": ("render", "nowhere.json"),
    "explain": ("explain", "nothing-of-ours"),
    "schema": ("schema", "--nonsense"),
}
STOPS = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {error}
sys.meta_path.insert(0, Stop())
"""


def test_every_command_is_here() -> None:
    names = {module.__name__.rpartition(".")[2] for module in COMMANDS}
    assert names == set(ASKED) == set(UNUSABLE)


@pytest.mark.parametrize("name", ["compare", "explain", "history"])
def test_0_is_done(name: str, forks: Forks, tmp_path: Path) -> None:
    """The others are seen to succeed in the tests of what they do."""
    finished = forks.run(*ASKED[name][0], cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout


@pytest.mark.parametrize("name", UNUSABLE)
def test_2_is_one_sentence_and_nothing_written(name: str, forks: Forks, tmp_path: Path) -> None:
    finished = forks.run(*UNUSABLE[name], cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("gen-audit: ") != finished.stderr.startswith("Usage: ")  # ours, or Typer's
    assert "Traceback" not in finished.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ASKED)
def test_3_is_a_fault_of_ours(name: str, forks: Forks, tmp_path: Path) -> None:
    arguments, module = ASKED[name]
    finished = forks.run(*arguments, cwd=tmp_path, before=STOPS.format(module=module, error="ZeroDivisionError('bug')"))
    assert finished.returncode == 3
    assert "ZeroDivisionError: bug" in finished.stderr
    assert "this is a fault of gen-audit" in finished.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ASKED)
def test_130_is_an_interruption_and_leaves_nothing_behind(name: str, forks: Forks, tmp_path: Path) -> None:
    arguments, module = ASKED[name]
    finished = forks.run(*arguments, cwd=tmp_path, before=STOPS.format(module=module, error="KeyboardInterrupt"))
    assert (finished.returncode, finished.stdout) == (130, "")
    assert "Traceback" not in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_1_is_a_gate_that_failed(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "gen-audit.toml").write_text("[policy.gap.error_gap]\nmax = 0.01\n")
    finished = forks.run("check", EXAMPLE, cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (1, "")
    assert finished.stdout.splitlines()[-1] == "failed: 1 of 1 rule of gen-audit.toml: gap.error_gap.max"


@pytest.mark.slow  # wakes torch to read the files; the tests of verify see the other way to 1
def test_1_is_a_report_about_other_files(forks: Forks, tmp_path: Path) -> None:
    finished = forks.run("verify", EXAMPLE, ROOT / "samples" / "large-batch.onnx", SAMPLE[1], "--json", cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (1, "")
    told = json.loads(finished.stdout)
    assert not told["reproduced"] and told["other"].endswith("is not the model of the report; its sha256 differs.")
