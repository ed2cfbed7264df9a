"""`--templates DIR`: single templates replaced, everything still escaped, and one sentence where one is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import reports
from drawn import render_html, render_markdown

from audit.errors import UsageError
from audit.measures import Report
from audit.render.page import template_names
from audit.render.write import PageOptions, write_report


@pytest.fixture
def own(tmp_path) -> Path:
    (tmp_path / "parts").mkdir()
    return tmp_path


def test_one_template_is_replaced_and_the_others_stay(own):
    (own / "parts" / "sign-off.html.j2").write_text("<p>Signed at {{ model.path }}.</p>", encoding="utf-8")
    report = reports.with_changes(model={"path": "<b>here</b>"})
    html = render_html(report, templates=own)
    assert "<p>Signed at &lt;b&gt;here&lt;/b&gt;.</p>" in html
    assert "Prepared by" not in html and 'id="again"' in html
    assert "Prepared by" in render_html(report)


def test_the_style_sheet_can_be_replaced(own):
    (own / "report.css").write_text("body { color: teal; }", encoding="utf-8")
    html = render_html(reports.classification(), templates=own)
    assert "color: teal" in html and "--accent" not in html


def test_markdown_of_one_s_own_is_escaped_without_asking(own):
    (own / "report.md.j2").write_text("# {{ report.model.path }}\n", encoding="utf-8")
    report = reports.with_changes(model={"path": "a|b <script>*x*</script>"})
    assert render_markdown(report, own) == "# a\\|b \\<script\\>\\*x\\*\\</script\\>\n"


def test_report_is_written_with_them(own, tmp_path):
    (own / "report.html.j2").write_text("{{ title(report) }}", encoding="utf-8")
    report = Report.from_json(reports.EXAMPLE.read_text(encoding="utf-8"))
    out = tmp_path / "out"
    out.mkdir()
    write_report(report, out, ("html",), options=PageOptions(templates=own))
    assert (out / "report.html").read_text(encoding="utf-8") == "healthy.onnx on mnist"


def test_every_template_can_be_named():
    names = template_names()
    assert {"report.html.j2", "report.md.j2", "report.css", "parts/summary.html.j2", "parts/figures.svg.j2"} <= set(
        names
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{% if %}", "report.html.j2, line 1: cannot be drawn (Expected an expression, got 'end of statement block')"),
        ("a\n{{ nothing }}", "report.html.j2, line 2: cannot be drawn ('nothing' is undefined)"),
        ("{{ report.gap.loss_gap | upside_down }}", "line 1: cannot be drawn (No filter named 'upside_down'.)"),
        ("{{ 1 / 0 }}", "report.html.j2, line 1: cannot be drawn (division by zero)"),
        ('{% include "absent.j2" %}', "report.html.j2, line 1: cannot be drawn ('absent.j2' not found in search path"),
    ],
)
def test_a_faulty_template_is_named_with_its_line(own, text, words):
    (own / "report.html.j2").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        render_html(reports.classification(), templates=own)
    assert words in str(error.value)
    assert str(error.value).endswith("mend the template.")


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("absent", "is no folder; name the one that holds your templates."),
        (".", "holds none of the files that it could"),
    ],
)
def test_a_folder_that_replaces_nothing_is_refused(own, folder, words):
    (own / "reprot.html.j2").write_text("misspelt", encoding="utf-8")
    command = [sys.executable, "-m", "audit", "render", str(reports.EXAMPLE), "-o", str(own / "out")]
    run = subprocess.run([*command, "--templates", str(own / folder)], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert words in run.stderr and run.stderr.count("\n") == 1
    assert not (own / "out").exists()
