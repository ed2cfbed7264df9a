"""An audit that was stopped goes on from what it had finished, and from nothing that is about another audit."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from formats import QUICK, data_of, example_of, trained, write_onnx

from audit.cli.app import resumable
from audit.errors import BudgetError, UsageError, within_means
from audit.measures import Report
from audit.run.partial import Partial
from audit.run.pipeline import Following, run_audit
from audit.run.progress import Progress
from audit.settings import Settings

SETTINGS = Settings(**QUICK)
ALL = ["gap", "calibration", "consequences", "duality", "flatness", "fisher", "sensitivity", "hygiene"]


class Stopping(Progress):
    """Is interrupted as a stage begins; remembers those that began."""

    def __init__(self, where: str = "never") -> None:
        super().__init__()
        self._where = where
        self.begun: list[str] = []

    def begin(self, name: str, words: str) -> None:
        self.begun.append(name.removeprefix("measure "))
        if name == self._where:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("partial")
    data_of("relu").save(path / "data")
    write_onnx(trained("relu"), example_of("relu"), path / "model.onnx", opset=13)
    return path


@pytest.fixture(scope="module")
def whole(folder: Path) -> Report:
    return run_audit(folder / "model.onnx", folder / "data", SETTINGS, "", Progress()).report


def go(folder: Path, kept: Partial, progress: Progress, settings: Settings = SETTINGS) -> Report:
    return run_audit(folder / "model.onnx", folder / "data", settings, "", progress, Following(kept=kept)).report


def stopped(folder: Path, place: Path, where: str = "measure fisher") -> None:
    with pytest.raises(KeyboardInterrupt):
        go(folder, Partial(place, resume=False), Stopping(where))


def numbers(report: Report) -> dict[str, Any]:
    """All but the moment and what the machine's speed at the moment makes of the plan."""
    values = report.as_read().to_dict()
    return {name: value for name, value in values.items() if name not in ("created", "timings", "plan")}


def test_resuming_where_nothing_was_left_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "about.json").write_text("{}")
    for name, resume in (("out", True), ("new", False), ("other", True)):
        with contextlib.suppress(OSError), resumable(tmp_path / name, resume):
            raise OSError
    said = f"gen-audit: --resume: there is no unfinished audit in {tmp_path / 'out.partial'}; beginning anew.\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("where", ["capture", "measure gap", "measure flatness", "measure hygiene", "checks"])
def test_going_on_gives_the_report_of_an_audit_that_was_never_stopped(
    folder: Path, whole: Report, tmp_path: Path, where: str
) -> None:
    place = tmp_path / "out.partial"
    stopped(folder, place, where)
    done = ALL[: ALL.index(where.removeprefix("measure "))] if where.startswith("measure") else ALL
    if where == "capture":
        assert not place.exists()
        return
    assert {path.stem for path in place.iterdir()} == {"about", "tails", *done}
    kept, progress = Partial(place, resume=True), Stopping()
    resumed = go(folder, kept, progress)
    assert numbers(resumed) == numbers(whole)
    assert [key for key in ALL if key in progress.begun] == [key for key in ALL if key not in done]
    assert set(resumed.timings["measures"]) == set(ALL)
    kept.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_plan_goes_on_too(folder: Path, tmp_path: Path) -> None:
    place, brief = tmp_path / "out.partial", replace(SETTINGS, budget="0.000001s")
    with pytest.raises(KeyboardInterrupt):
        go(folder, Partial(place, resume=False), Stopping("checks"), brief)
    about = json.loads((place / "about.json").read_text())
    about["plan"]["stages"][-1]["samples"] = 3  # as another machine would have planned
    (place / "about.json").write_text(json.dumps(about))
    report = go(folder, Partial(place, resume=True), Progress(), brief)
    assert report.plan.stage("checks").samples == 3 and not report.plan.is_exact("flatness")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": "0.0.1"}, r"is about another audit \(by gen-audit 0\.0\.1\); leave --resume out to begin anew"),
        ({"model": "0"}, r"is about another audit \(the model had another sha256\)"),
        ({"data": "0"}, r"is about another audit \(the data had another sha256\)"),
        ({"settings": {}}, r"is about another audit \(--trust-pickle was None then and is False now\)"),
        ({"plan": []}, r"about\.json is damaged; leave --resume out to begin anew"),
    ],
)
def test_another_audit_is_not_gone_on_with(folder: Path, tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    stopped(folder, tmp_path / "out.partial")
    about = tmp_path / "out.partial" / "about.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | changed))
    with pytest.raises(UsageError, match=words):
        go(folder, Partial(tmp_path / "out.partial", resume=True), Progress())


def test_other_settings_are_named_but_less_memory_is_welcome(folder: Path, whole: Report, tmp_path: Path) -> None:
    stopped(folder, tmp_path / "out.partial")
    going_on = partial(Partial, tmp_path / "out.partial", resume=True)
    with pytest.raises(UsageError, match=r"--seed was 0 then and is 7 now"):
        go(folder, going_on(), Progress(), replace(SETTINGS, seed=7))
    report = go(folder, going_on(), Progress(), replace(SETTINGS, memory="1GB"))
    assert report.gap == whole.gap


def test_a_damaged_file_is_a_sentence(folder: Path, tmp_path: Path) -> None:
    stopped(folder, tmp_path / "out.partial")
    (tmp_path / "out.partial" / "gap.json").write_text('{"network": {"train_loss": "small"}}')
    kept = Partial(tmp_path / "out.partial", resume=True)
    with pytest.raises(UsageError, match=r"--resume: .*gap\.json is damaged; leave --resume out to begin anew"):
        go(folder, kept, Progress())
    assert not kept.holds_something  # nobody is told that the same command would go on


def test_a_new_audit_removes_what_an_old_one_left_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    stopped(folder, tmp_path / "out.partial")
    own = tmp_path / "out.partial" / "notes.txt"
    own.write_text("mine")
    Partial(tmp_path / "out.partial", resume=False)
    assert list((tmp_path / "out.partial").iterdir()) == [own]


def test_running_out_of_memory_is_a_sentence_that_names_the_flag() -> None:
    with pytest.raises(BudgetError, match="ran out of memory; give the audit less with --memory"), within_means():
        torch.empty(2**46, dtype=torch.float64)
    with pytest.raises(BudgetError, match="--memory"), within_means():
        raise MemoryError
    with pytest.raises(RuntimeError, match="shapes"), within_means():
        torch.eye(2) @ torch.eye(3)
