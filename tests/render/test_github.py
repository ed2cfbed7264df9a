"""GitHub Actions: a summary of the step and annotations that nothing in the report can break out of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drawn import render_markdown, workflow_commands
from hypothesis import given, settings
from made_reports import made, split
from reports import classification, with_changes
from verdicts import finding, odd_reports, odd_verdicts, result, verdict

from audit.compare.compare import compare_reports
from audit.measures import Report
from audit.policy import Verdict
from audit.render.ci import tell_github, tell_github_of

RIGHT, WRONG = split([0.1] * 200, [0] * 200), split([2.0] * 200, [1] * 200)
REPORT = Report.from_json(json.dumps(classification()))


@settings(max_examples=30, deadline=None)
@given(odd_reports(), odd_verdicts)
def test_every_annotation_is_one_command_on_one_line(report: dict[str, Any], said: Verdict) -> None:
    for line in workflow_commands(report, said):
        assert "\n" not in line and "\r" not in line
        command, _, message = line.removeprefix("::").partition("::")
        kind, _, properties = command.partition(" ")
        assert kind in ("error", "warning", "notice") and message is not None
        assert [each.split("=")[0] for each in properties.split(",")] == ["file", "title"]
        assert ":" not in properties


def test_errors_come_first_and_no_more_than_github_keeps() -> None:
    report = with_changes(findings=[finding("watch", id=str(index)) for index in range(15)])
    lines = workflow_commands(report, verdict(result("warn"), result("fail")))
    assert [line.split()[0] for line in lines] == ["::error", "::warning", *["::notice"] * 10]
    where = "file=samples/healthy.onnx,title=Policy%3A gap.error_gap.max"
    assert lines[0] == f"::error {where}::gap.error_gap.max failed: beyond its limit."


def test_the_summary_is_appended_to(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    tell_github(REPORT, {"GITHUB_STEP_SUMMARY": str(summary)}, verdict(result("fail")))
    text = summary.read_text(encoding="utf-8")
    opening, rule = "failed: 1 of 1 rule of the default policy: gap.error\\_gap.max", "gap.error\\_gap.max **failed**"
    assert text.startswith(f"before\n**Policy {opening}**\n\n- {rule}: beyond its limit\n")
    assert text.endswith(f"{render_markdown(classification())}\n")


def test_elsewhere_nothing_is_said() -> None:
    assert tell_github(REPORT, {}, verdict(result("fail"))) == []


def test_a_summary_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (line,) = tell_github(REPORT, {"GITHUB_STEP_SUMMARY": str(tmp_path)}, verdict(result("fail")))
    assert line == "::warning::GITHUB_STEP_SUMMARY: cannot be written to (Is a directory)."


def test_the_summary_carries_the_sentence_of_a_comparison(tmp_path: Path) -> None:
    summary, sides = tmp_path / "summary.md", (made("a", test=RIGHT), made("b", test=WRONG))
    found = compare_reports(*sides, "")
    tell_github(REPORT, {"GITHUB_STEP_SUMMARY": str(summary)}, comparison=found)
    tell_github_of(found, {"GITHUB_STEP_SUMMARY": str(summary)})
    text = summary.read_text(encoding="utf-8")
    said = "The new model is worse than the old one on this test set"
    assert text.startswith(f"**Against the baseline: worse.** {said}") and text.count(said) == 2
    assert "### a.onnx → b.onnx\n\n**Verdict on the new side: worse.**" in text
    assert tell_github_of(found, {}) == []
