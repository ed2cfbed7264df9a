"""The page is HTML and CSS to the letter, and no name from a model or a folder becomes markup in any format."""

from __future__ import annotations

import re
import subprocess

import pytest
import reports
import tinycss2
import tinyhtml5
from drawn import render_html, render_markdown
from pages import Page

from audit.render.pdf import write_pdf

HOSTILE = "<script>alert(1)</script>"
BOTH = pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())


def hostile() -> dict:
    report = reports.classification()
    report["model"]["path"] = f"models/{HOSTILE}.onnx"
    report["layers"][0]["name"] = HOSTILE
    for row in (report["gap"]["per_class"][0], report["network"]["duality"]["classes"][0]):
        row["name"] = HOSTILE
    return report


def parse_errors(html: str) -> list[str]:
    parser = tinyhtml5.parser.HTMLParser()
    parser.parse(html)
    return [f"{place}: {code} {details}" for place, code, details in parser.errors]


@BOTH
@pytest.mark.parametrize("paper", [False, True])
def test_a_parser_of_the_standard_finds_no_error(report, paper):
    assert parse_errors(render_html(report, paper=paper)) == []
    assert parse_errors("<!DOCTYPE html><p><table><b></table></i>") != []


@BOTH
@pytest.mark.parametrize("paper", [False, True])
def test_style_sheet_has_no_error(report, paper):
    style = re.search(r"<style>(.*?)</style>", render_html(report, paper=paper), re.S)[1]
    rules = tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True)
    assert len(rules) > 50
    assert [rule.message for rule in rules if rule.type == "error"] == []
    for rule in rules:
        if rule.type == "qualified-rule":
            found = tinycss2.parse_blocks_contents(rule.content)
            assert [one.message for one in found if one.type == "error"] == []


def test_hostile_names_are_text_on_the_page_and_in_its_pictures():
    html = render_html(hostile())
    assert "<script" not in html
    assert "script" not in {tag for tag, _ in Page(html).elements}
    pictures = re.findall(r"<svg.*?</svg>", html, re.S)
    assert sum("&lt;script&gt;" in picture for picture in pictures) >= 5
    assert Page(html).text.count(HOSTILE) >= 8
    assert parse_errors(html) == []


def test_hostile_names_are_text_in_markdown():
    text = render_markdown(hostile())
    assert "<" not in text.replace("\\<", "")
    assert r"\<script\>alert(1)\</script\>" in text


def test_hostile_names_are_text_in_the_pdf(tmp_path):
    path = tmp_path / "report.pdf"
    write_pdf(render_html(hostile(), paper=True), path)
    assert not re.search(rb"/JavaScript|/JS\b|/Launch|/OpenAction", path.read_bytes())
    try:
        run = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("pdftotext is not here to read the PDF's text")
    assert HOSTILE in run.stdout.replace("\u200b", "")
