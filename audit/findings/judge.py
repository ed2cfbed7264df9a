"""Lets every rule look at a report, and puts what they say in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from audit.findings.conditions import broken_blocks
from audit.findings.rule import LEVELS, Rule, Verdict
from audit.findings.rules import RULES
from audit.findings.unjudged import not_judged
from audit.measures.report import Report
from audit.report.paths import value_at
from audit.report.report import Finding

FIRST_PAGE = 6  # findings; the others follow behind the contents
NOTES = 3  # how many of them may be notes where there is something good


def judge(report: Report) -> Report:
    """The report with its findings, heaviest first, and with what could not be judged.

    Order: concern, watch, note, good; within a level the order of `RULES`. Judging a judged report changes nothing.
    """
    broken = broken_blocks(report)
    spoken = [(rule, rule.find(report)) for rule in RULES if broken.isdisjoint(rule.rests_on)]
    findings = [_finding(report, rule, verdict) for rule, verdict in spoken if verdict is not None]
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    shown = {finding.id for finding in first_page(findings)}
    marked = [replace(finding, first_page=finding.id in shown) for finding in findings]
    return replace(report, findings=marked, not_judged=not_judged(report))


def first_page(findings: Sequence[Finding]) -> list[Finding]:
    """The few findings that a reader sees first, in order: at most `FIRST_PAGE`. All others stay in the JSON.

    Every concern and watch, as far as there is room; then the three heaviest notes; then what is good. An audit with
    nothing left out has at least three: the gap, the trust in its numbers, and copies across the splits.
    """
    by_level = {level: [finding for finding in findings if finding.level == level] for level in LEVELS}
    return [*by_level["concern"], *by_level["watch"], *by_level["note"][:NOTES], *by_level["good"]][:FIRST_PAGE]


def _finding(report: Report, rule: Rule, verdict: Verdict) -> Finding:
    return Finding(
        id=rule.id,
        level=verdict.level,
        title=verdict.title,
        explanation=verdict.explanation,
        evidence=cited(report, verdict.evidence),
        advice=verdict.advice,
        source=rule.source,
    )


def cited(report: Report, paths: Iterable[str]) -> dict[str, Any]:
    """Every path with its value, as in the JSON; a number that does not exist is no evidence and is left out."""
    found = {path: value_at(path, report) for path in paths}
    return {path: _plain(value) for path, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
