"""The Markdown: the same facts, and tables that hostile names cannot break."""

from __future__ import annotations

import pytest
import reports

from audit.render import render_markdown


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


@pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())
def test_rows_of_a_table_have_the_same_number_of_cells(report):
    for table in tables(render_markdown(report)):
        assert {cells(row) for row in table} == {cells(table[0])}


def test_names_cannot_break_a_table_or_become_markup():
    report = reports.classification()
    report["layers"][0]["name"] = "a|b\n| <b>*c*</b> `d`"
    text = render_markdown(report)
    assert r"| a\|b \| \<b\>\*c\*\</b\> \`d\` | gemm | 784 → 30 | captured |" in text


def test_gap_and_warnings_are_told():
    text = render_markdown(reports.with_changes(warnings=["Train accuracy is at chance."]))
    assert text.startswith("# healthy.onnx on mnist\n\n> **Warning:** Train accuracy is at chance.\n")
    assert "| wrong answers | 0.00 % | 7.20 % | +7.20 points | +5.60 to +8.80 points |" in text
    assert "passed by: a convolution, not a dense layer" in text


def test_regression_has_no_error_row():
    text = render_markdown(reports.regression())
    assert "| RMSE | 0.551 | 0.848 | | |" in text
    assert "wrong answers" not in text
    assert "Class by class" not in text


def test_blank_lines_never_pile_up():
    for report in (reports.classification(), reports.regression()):
        assert "\n\n\n" not in render_markdown(report)
