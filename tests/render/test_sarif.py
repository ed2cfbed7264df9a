"""SARIF: valid, one alert for whatever calls for attention, the same alert for the next version of the model."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from drawn import render_sarif
from hypothesis import given, settings
from places import SCHEMAS
from reports import both, with_changes
from verdicts import finding, odd_reports, odd_verdicts, result, verdict

from audit.policy import Verdict

SCHEMA = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def run_of(report: dict[str, Any], said: Verdict | None = None) -> dict[str, Any]:
    """The run of a log, its references followed."""
    log = json.loads(render_sarif(report, said))
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    for each in run["results"]:
        assert run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
        assert (
            each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            == run["artifacts"][0]["location"]["uri"]
        )
    return run


def levels(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["ruleId"], each["level"]) for each in run["results"]]


@pytest.mark.parametrize("name", both())
def test_examples_are_valid_and_list_every_check_and_finding(name: str) -> None:
    report = both()[name]
    rules = run_of(report)["tool"]["driver"]["rules"]
    checks = [f"{check['kind']}/{check['id']}" for check in report["checks"]]
    findings = dict.fromkeys(f"finding/{finding['id']}" for finding in report["findings"])
    assert [rule["id"] for rule in rules] == [*checks, *findings]


@settings(max_examples=25, deadline=None)
@given(odd_reports(), odd_verdicts)
def test_anything_in_the_report_stays_valid(report: dict[str, Any], said: Verdict) -> None:
    errors = [each for each in levels(run_of(report, said)) if each[1] == "error"]
    assert len(errors) == len(said.that("fail"))
    ids = [rule["id"] for rule in run_of(report)["tool"]["driver"]["rules"]]
    assert len(ids) == len(set(ids))


def test_alerts_speak_as_loudly_as_what_they_say() -> None:
    report = with_changes(
        warnings=["The verdict is void."],
        findings=[finding(level, id=level) for level in ("good", "note", "watch", "concern")],
    )
    report["checks"][0]["status"] = report["checks"][-1]["status"] = "failed"
    check, assumption = report["checks"][0]["id"], report["checks"][-1]["id"]
    assert levels(run_of(report)) == [
        (f"check/{check}", "error"),
        ("warning/before-any-number", "warning"),
        ("finding/concern", "warning"),
        (f"assumption/{assumption}", "note"),
        ("finding/watch", "note"),
    ]
    with_policy = levels(run_of(report, verdict(result("fail"), result("warn", name="b"))))
    assert with_policy[:2] == [("rule/gap.error_gap.max", "error"), ("rule/b", "warning")]
    assert (f"check/{check}", "warning") in with_policy


def test_a_rule_about_a_finding_speaks_for_it() -> None:
    report = with_changes(findings=[finding(id="leaked"), finding(id="other")])
    run = run_of(report, verdict(result("fail", name="finding.leaked")))
    assert levels(run) == [("rule/finding.leaked", "error"), ("finding/other", "warning")]
    assert run["results"][0]["message"]["text"] == ("finding.leaked failed: beyond its limit. It is there. Look.")
    silent = run_of(report, verdict(result("pass", "passed", name="finding.leaked")))
    assert levels(silent) == [("finding/leaked", "warning"), ("finding/other", "warning")]


def test_fingerprints_tell_alerts_apart_and_outlive_their_numbers() -> None:
    report = with_changes(warnings=["first", "second"], findings=[finding(explanation="7 %")])
    later = with_changes(
        warnings=["first", "second"], findings=[finding(explanation="8 %")], model={"sha256": "0" * 64}
    )
    before, after = ([each["partialFingerprints"] for each in run_of(each)["results"]] for each in (report, later))
    assert before == after
    assert len({json.dumps(each) for each in before}) == 3


def test_a_path_is_a_uri() -> None:
    where = run_of(with_changes(model={"path": "runs/my model #1.onnx"}))["artifacts"][0]["location"]["uri"]
    assert where == "runs/my%20model%20%231.onnx"
