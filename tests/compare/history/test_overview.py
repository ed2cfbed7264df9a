"""Many models at a glance: sorted by what was found, linked to their reports, broken files named and not fatal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from made_reports import example, leaked
from pages import Page
from places import ROOT

from audit.compare.history import OVERVIEW_SCHEMA, Overview, make_overview
from audit.errors import UsageError
from audit.measures import Report
from audit.render.comparison_pages import values, write_overview
from audit.report.fields import schema_of

BLOCKED = (
    "import sys\n"
    "class Blocked:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.split('.')[0] in ('torch', 'onnx', 'onnxruntime'):\n"
    "            raise ImportError(f'{name} is not installed here')\n"
    "sys.meta_path.insert(0, Blocked())\n"
    "sys.argv[0] = 'gen-audit'\nfrom audit.cli import main\nmain()\n"
)


def with_levels(report: Report, *levels: str) -> Report:
    return replace(report, findings=[replace(report.findings[0], level=level) for level in levels])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A healthy model, one with a concern, one to watch, a void one, a regression, and what is none."""
    fine = with_levels(example("classification"), "note", "good")
    reports = {
        "a fine": fine,
        "bad": with_levels(fine, "watch", "concern"),
        "odd": with_levels(fine, "watch"),
        "void": leaked(fine),
        "regression": with_levels(example("regression"), "note"),
    }
    for name, report in reports.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(report.to_json(), encoding="utf-8")
    (tmp_path / "bad" / "report.html").write_text("page", encoding="utf-8")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "report.json").write_text(fine.to_json()[:5000], encoding="utf-8")
    (tmp_path / "damaged.json").write_text(json.dumps({"schema": "gen-audit/1"}), encoding="utf-8")
    (tmp_path / "deep.json").write_text('{"schema": "gen-audit/1", "model": ' + "[" * 100_000, encoding="utf-8")
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    return tmp_path


def overview(folder: Path) -> Overview:
    return make_overview(folder, "gen-audit overview x")


def test_rows_stand_in_the_order_of_what_was_found(folder: Path) -> None:
    rows = overview(folder).rows
    assert [row.name for row in rows] == ["bad", "odd", "a fine", "void", "regression"]
    assert rows[0].found[0].startswith("concern: ") and rows[0].found[1].startswith("watch: ")
    assert rows[3].void is not None and rows[4].number == "test_rmse"


def test_broken_reports_are_named_and_other_files_are_not(folder: Path) -> None:
    broken = {Path(file.path).relative_to(folder).as_posix(): file.why for file in overview(folder).broken}
    assert set(broken) == {"half/report.json", "damaged.json", "deep.json"}
    assert broken["half/report.json"] == ("is no report, or only a part of one; make it anew with `gen-audit report`.")
    assert broken["damaged.json"].startswith("is not a gen-audit/1 report (")


def test_a_folder_without_any_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no report of gen-audit; put report.json files into it"):
        overview(tmp_path)
    with pytest.raises(UsageError, match=r"is no folder; name the one that holds the report.json files"):
        overview(tmp_path / "nowhere")


def test_links_lead_from_the_page_to_every_report(folder: Path) -> None:
    found, out = overview(folder), folder / "pages" / "all"
    out.mkdir(parents=True)
    write_overview(found, out, ("html", "md", "json"), out)
    page = Page((out / "overview.html").read_text(encoding="utf-8"))
    ways = [attributes["href"] for tag, attributes in page.elements if tag == "a" and ".." in attributes["href"]]
    assert ways[:3] == ["../../bad/report.html", "../../odd/report.json", "../../a%20fine/report.json"]
    assert all((out / way.replace("%20", " ")).exists() for way in ways) and len(ways) == 5
    jsonschema.validate(json.loads((out / "overview.json").read_text()), schema_of(Overview, OVERVIEW_SCHEMA))
    assert "half/report.json" in (out / "overview.md").read_text()


def test_wrong_answers_share_a_scale_and_other_errors_have_their_own(folder: Path) -> None:
    found = overview(folder)
    scales = values(found, folder)["scales"]
    first, *_, last = (scales[row.report] for row in found.rows)
    assert all(scales[row.report] == first for row in found.rows if row.kind == "percent") and last != first


def test_the_command_needs_no_torch_and_prints_a_table(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-c", BLOCKED, "overview", ".", "-o", "out"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "1 of concern, 1 to watch: " in next(line for line in lines if line.lstrip().startswith("bad"))
    assert lines[-2:] == [str(Path("out/overview.html")), str(Path("out/overview.json"))]
    assert done.stderr.count("\n") == 3 and "half/report.json: is no report" in done.stderr
