"""JUnit XML: valid, complete, and its failures are what fails the gate."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from drawn import render_junit
from hypothesis import given, settings
from places import SCHEMAS
from reports import both, with_changes
from verdicts import finding, odd_reports, odd_verdicts, result, verdict

from audit.policy import Verdict

SCHEMA = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


def suites(xml: str) -> dict[str, ElementTree.Element]:
    return {suite.attrib["name"]: suite for suite in ElementTree.fromstring(xml)}


def failures(xml: str) -> list[str]:
    return [
        case.attrib["name"] for case in ElementTree.fromstring(xml).iter("testcase") if case.find("failure") is not None
    ]


@pytest.mark.parametrize("name", both())
def test_examples_are_valid_and_have_a_case_for_every_check_and_finding(name: str) -> None:
    report = both()[name]
    xml = render_junit(report)
    SCHEMA.validate(xml)
    cases = [case.attrib["name"].split(":")[0] for case in ElementTree.fromstring(xml).iter("testcase")]
    assert sorted(cases) == sorted(each["id"] for each in (*report["checks"], *report["findings"]))


@settings(max_examples=20, deadline=None)
@given(odd_reports(), odd_verdicts)
def test_anything_in_the_report_stays_valid_and_counted(report: dict[str, Any], given_verdict: Verdict) -> None:
    for said in (None, given_verdict):
        xml = render_junit(report, said).encode("utf-8")  # no lone surrogate is left
        SCHEMA.validate(xml.decode())
        root = ElementTree.fromstring(xml)
        for suite in root:
            cases = suite.findall("testcase")
            found = (len(cases), len(suite.findall("testcase/failure")), len(suite.findall("testcase/skipped")))
            assert found == tuple(int(suite.attrib[key]) for key in ("tests", "failures", "skipped"))
        assert int(root.attrib["failures"]) == sum(int(suite.attrib["failures"]) for suite in root)


@settings(max_examples=20, deadline=None)
@given(odd_reports(), odd_verdicts)
def test_with_a_policy_exactly_its_failed_rules_fail(report: dict[str, Any], given_verdict: Verdict) -> None:
    xml = render_junit(report, given_verdict)
    assert len(failures(xml)) == len(given_verdict.that("fail"))
    assert (not failures(xml)) == given_verdict.passed


def test_without_a_policy_only_self_checks_fail() -> None:
    report = with_changes(findings=[finding("concern")], warnings=["The verdict is void."])
    for check in report["checks"]:
        check["status"] = "failed"
    checks = [check["id"] for check in report["checks"] if check["kind"] == "check"]
    assert [name.split(":")[0] for name in failures(render_junit(report))] == checks


def test_what_could_not_be_told_is_skipped_with_its_sentence() -> None:
    open_rules = (result("warn", "inconclusive", "a.max"), result("pass", "not measurable", "b.max"))
    policy = suites(render_junit(with_changes(), verdict(*open_rules)))["policy"]
    assert [case.attrib["message"] for case in policy.iter("skipped")] == [
        f"{rule.id} {rule.status}: {rule.sentence}." for rule in open_rules
    ]


def test_findings_pass_and_say_what_they_found() -> None:
    cases = suites(render_junit(with_changes(findings=[finding(title="<script> & co")])))["findings"]
    assert cases[1].attrib["name"] == "gap: <script> & co"
    assert cases[1].findtext("system-out") == "It is there. Look."
