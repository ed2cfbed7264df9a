"""The Markdown: short enough for a comment, the same facts, and lines that hostile names cannot break."""

from __future__ import annotations

import copy
import re

import pytest
import reports
from drawn import render_markdown

BOTH = pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())


def tables(text: str) -> list[list[str]]:
    blocks, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            blocks.append(rows)
            rows = []
    return blocks


def cells(row: str) -> int:
    return row.replace("\\|", "").count("|") - 1


def line(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"- **{name}:**")).split(":** ")[1]


@BOTH
def test_rows_of_a_table_have_the_same_number_of_cells(report):
    found = tables(render_markdown(report))
    assert len(found) == 1
    for table in found:
        assert {cells(row) for row in table} == {cells(table[0])}


@BOTH
def test_comment_is_short_and_has_no_links(report):
    text = render_markdown(report)
    assert len(text.splitlines()) <= 25
    assert not re.search(r"\]\(|https?:", text)
    assert "\n\n\n" not in text


def test_hundred_layers_stay_short():
    report = reports.classification()
    report["layers"] = [copy.deepcopy(report["layers"][index % 3]) | {"name": f"layer {index}"} for index in range(100)]
    report["passed_by"] *= 30
    text = render_markdown(report)
    assert len(text) < 3000
    assert line(text, "Where the gap comes from").endswith("; 94 more layers in report.json.")
    assert line(text, "Layers").endswith("and 25 more.")


def test_names_cannot_become_markup():
    report = reports.classification()
    report["layers"][0]["name"] = "a|b\n- <b>*c*</b> `d`"
    text = render_markdown(report)
    assert r"a\|b - \<b\>\*c\*\</b\> \`d\`: 26 % sharp, 74 % flat; fc2:" in text


def test_gap_and_warnings_are_told():
    text = render_markdown(reports.with_changes(warnings=["Train accuracy is at chance."]))
    assert text.startswith("# healthy.onnx on mnist\n\n> **Warning:** Train accuracy is at chance.\n")
    assert "| wrong answers | 0.00 % | 7.20 % | +7.20 points | +5.60 to +8.80 points |" in text


def test_every_section_has_its_line():
    text = render_markdown(reports.classification())
    assert line(text, "Where the gap comes from").startswith("fc1: 26 % sharp, 74 % flat; fc2: 54 % sharp, 46 % flat;")
    assert line(text, "Data hygiene") == (
        "test samples also in train: 0 exactly, near ones 0; conflicting labels: 0; suspect train labels: 901 (about "
        "112 by chance); estimated wrong: 23.99 % (95 % interval 21.65 % to 26.13 %); class proportions alike."
    )
    assert line(text, "Self-checks") == "none of 9 failed."
    assert line(text, "Layers") == "3 measured, 1 passed by: features.0.conv."


def test_void_verdict_and_failed_checks_are_named():
    report = reports.classification()
    report["hygiene"]["leaked"]["void"] = True
    report["hygiene"]["near_duplicates"] = None
    report["checks"][0] |= {"title": "The sums agree", "status": "failed", "kind": "check"}
    text = render_markdown(report)
    assert line(text, "Data hygiene").startswith("the verdict is void; test samples also in train: 0 exactly")
    assert "near ones not looked for" in text
    assert line(text, "Self-checks") == "1 of 9 failed: The sums agree."


def test_checks_that_were_not_made_do_not_count_as_passed():
    report = reports.classification()
    made = [check for check in report["checks"] if check["kind"] == "check"]
    made[0]["status"] = made[1]["status"] = "skipped"
    stage = {"name": "checks", "form": "skipped", "why": "Left out by --quick."}
    text = render_markdown(report | {"plan": report["plan"] | {"quick": True, "stages": [stage]}})
    assert line(text, "Self-checks") == "none of 7 failed; 2 could not be looked at."
    assert "Self-checks that need a pass of their own left out" in line(text, "Measured how")


def test_missing_measures_are_said_to_be():
    report = reports.classification()
    report["network"]["duality"] = None
    report["checks"] = []
    text = render_markdown(report)
    for name in ("Where the gap comes from", "Self-checks", "Assumptions of the source studies"):
        assert line(text, name) == "not part of this audit."


def test_regression_has_no_error_row_and_no_labels():
    text = render_markdown(reports.regression())
    assert "| RMSE | 0.551 | 0.848 | | |" in text
    assert "wrong answers" not in text
    assert line(text, "Data hygiene") == ("test samples also in train: 0 exactly, near ones 0; conflicting targets: 0.")
    assert line(text, "Assumptions of the source studies").startswith("1 of 3 not met: The network is piecewise linear")
