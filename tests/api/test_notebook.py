"""A report in a notebook: parts that show themselves, frames, progress in the cell, and errors that name arguments."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from formats import trained
from in_memory import pairs, wine
from pages import Page
from places import REGRESSION

from audit import Report, audit_model
from audit.api import in_notebook
from audit.errors import AuditError, UsageError
from audit.run.progress import CellProgress, Progress, progress_for
from audit.settings import as_arguments

PARTS = ("gap", "classes", "layers", "findings")


def regression() -> Report:
    return Report.from_json(REGRESSION.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PARTS)
def test_every_part_shows_itself_as_a_table(name: str) -> None:
    for report in (wine(), regression()):
        part = getattr(report, name)
        shown = Page(part._repr_html_())
        rows = sum(tag == "tr" for tag, _ in shown.elements)
        assert rows == 1 + len(part.cells()) == 1 + (len(part) if isinstance(part, list) else len(part.cells()))


@pytest.mark.parametrize("name", PARTS)
def test_every_part_prints_itself_as_a_small_table(name: str) -> None:
    for report in (wine(), regression()):
        part = getattr(report, name)
        assert str(part) == repr(part) and len(str(part)) < 5000
        assert len(str(part).splitlines()) == 1 + len(part.cells())
    lines = str(wine().layers).splitlines()
    assert lines[0].split()[:2] == ["layer", "kind"]
    assert [line.split()[0] for line in lines[1:]] == [layer.name for layer in wine().layers]


def test_a_long_table_and_a_long_name_are_cut_and_no_name_moves_the_cursor() -> None:
    values = json.loads(wine().to_json())
    first = values["gap"]["per_class"][0]
    values["gap"]["per_class"] = [first | {"name": "\x1b[2J" + "n" * 100}] * 50
    shown = str(Report.from_json(json.dumps(values)).classes)
    assert "\x1b" not in shown and " " + "n" * 81 not in shown and "n…" in shown
    assert len(shown.splitlines()) == 42 and shown.endswith("… 10 more: .rows() has them all")


def test_the_parts_are_still_what_they_were() -> None:
    report = wine()
    assert report.gap.test_loss == json.loads(report.to_json())["gap"]["test_loss"]
    assert report.layers[0].name == report.to_dict()["layers"][0]["name"]
    assert [each.name for each in report.classes] == [each.name for each in report.gap.per_class]
    assert Report.from_json(report.to_json()).to_json() == report.to_json()
    assert regression().classes == []


def test_names_cannot_break_out_of_a_table() -> None:
    values = json.loads(wine().to_json())
    values["layers"][0]["name"] = values["findings"][0]["title"] = "<script>"
    report = Report.from_json(json.dumps(values))
    for shown in (report.layers._repr_html_(), report.findings._repr_html_()):
        assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_pictures_stand_in_the_cell() -> None:
    assert wine()._repr_html_().count("<svg") == 3  # the gap, the classes, small changes
    assert regression()._repr_html_().count("<svg") == 2


class Frames(types.ModuleType):
    """Stands for pandas, which gen-audit does not install: keeps the rows that it is given."""

    @staticmethod
    def DataFrame(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows


def test_frames_hold_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", Frames("pandas"))
    report = wine()
    assert [row["number"] for row in report.gap.to_frame()] == ["loss", "error"]
    assert report.gap.to_frame()[1]["test"] == report.gap.test_error
    assert {row["number"] for row in regression().gap.to_frame()} == {"loss", "rmse", "r2"}
    assert [row["kappa"] for row in report.layers.to_frame()] == [layer.flatness.kappa for layer in report.layers]
    for name in PARTS:
        rows = getattr(report, name).to_frame()
        assert all(row.keys() == rows[0].keys() for row in rows)


def test_without_pandas_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"^to_frame: pandas is not installed here; install it with `pip install pand"):
        wine().layers.to_frame()


@pytest.mark.parametrize(("shell", "there"), [("ZMQInteractiveShell", True), ("TerminalInteractiveShell", False)])
def test_a_notebook_is_known_by_its_shell(shell: str, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    awake = types.ModuleType("IPython")
    awake.get_ipython = lambda: type(shell, (), {})()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", awake)
    assert in_notebook() is there
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_progress_in_a_cell_is_one_line_that_goes(capsys: pytest.CaptureFixture[str]) -> None:
    watching = progress_for(quiet=False, in_cell=True)
    assert isinstance(watching, CellProgress) and type(progress_for(quiet=True, in_cell=True)) is Progress
    with watching.stage("load", "Loading the model"):
        pass
    watching.close()
    said = capsys.readouterr().err
    assert said.startswith("\rLoading the model …") and "\n" not in said and said.endswith(" \r")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"budget": "soon"}, r"^budget: 'soon' is not an amount of time; write it like 90s, 5m, 1h or none\.$"),
        ({"classes": "a,b"}, r"^(?!.*--).*classes"),
        ({"reshape": "flat-earth"}, r"^audit_model: 'flat-earth' is not one of"),
    ],
)
def test_errors_name_arguments_not_flags(settings: dict[str, str], sentence: str) -> None:
    train, test = pairs("relu")
    with pytest.raises(AuditError, match=sentence):
        audit_model(trained("relu"), train, test, **settings)


def test_only_flags_that_are_settings_become_arguments() -> None:
    assert as_arguments("leave --resume out, say --task regression") == 'leave --resume out, say task="regression"'
    assert as_arguments("hold it with --fix-input NAME=VALUE") == 'hold it with fix_input="NAME=VALUE"'


def test_saved_files_are_the_same_as_before(tmp_path: Path) -> None:
    (path,) = wine().save(tmp_path, "json")
    assert json.loads(path.read_text(encoding="utf-8"))["layers"] == json.loads(wine().to_json())["layers"]
