"""The findings of the first page in the terminal and in Markdown."""

from __future__ import annotations

import json
from dataclasses import replace

from drawn import render_markdown
from mutations import example

from audit.cli.terminal import summary
from audit.findings import add_findings


def test_the_terminal_prints_level_and_title_of_the_first_page() -> None:
    report = add_findings(example("example"))
    shown = [finding for finding in report.findings if finding.first_page]
    lines = summary(report)[-len(shown) :]
    assert [line.split(maxsplit=1) for line in lines] == [[finding.level, finding.title] for finding in shown]


def test_names_from_the_model_cannot_move_the_cursor() -> None:
    report = add_findings(example("example"))
    odd = replace(report.findings[0], title="layer \x1b[2J\nfc1", first_page=True)
    assert summary(replace(report, findings=[odd]))[-1].endswith(r"layer \u001b[2J fc1")


def test_markdown_explains_what_weighs_and_only_names_the_rest() -> None:
    report = add_findings(example("example"))
    text = render_markdown(json.loads(report.to_json()))
    for finding in report.findings:
        heavy = finding.level in ("concern", "watch")
        assert (f"**{finding.level.capitalize()}: {finding.title}.**" in text) == finding.first_page
        assert (finding.explanation[:60] in text) == (finding.first_page and heavy)
