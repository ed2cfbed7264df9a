"""Holds a report against a policy, rule by rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.measures.report import Report
from audit.policy.baseline import Baseline, status_of
from audit.policy.rules import Consequence, Interval, Policy, Rule, RuleResult, Status, Verdict
from audit.policy.sentences import about_limit, about_regression, about_word, number
from audit.report.blocks import PARITY
from audit.report.paths import Found, find
from audit.report.soundness import LEVELS

NO_BASELINE = "no baseline was given"


@dataclass(frozen=True)
class Judged:
    """One rule's answer about one number."""

    status: Status
    sentence: str
    value: float | str | bool | None = None
    interval: Interval = None
    allowed: float | None = None  # a relative limit in the number's own unit


def judge(policy: Policy, report: Report, baseline: Report | None = None, *, strict: bool = False) -> Verdict:
    """The verdict on a report. `strict` turns warnings into failures."""
    held = Held(report, baseline)
    named = {rule.path for rule in policy.rules if "*" not in rule.path}
    results = tuple(
        _result(rule, path, judged, strict)
        for rule in policy.rules
        if rule.level != "off"
        for path, judged in _answers(rule, held)
        if path == rule.path or path not in named  # a rule of its own beats the one for all
    )
    passed = all(result.consequence != "fail" for result in results)
    return Verdict(results, passed, policy.source, None if baseline is None else baseline.model.path, strict)


class Held:
    """A report and its baseline, each also as the JSON that paths are about."""

    def __init__(self, report: Report, baseline: Report | None) -> None:
        self.now = report.to_dict()
        self.before = {} if baseline is None else baseline.to_dict()
        self.baseline = None if baseline is None else Baseline(report, baseline)


def _answers(rule: Rule, held: Held) -> Iterator[tuple[str, Judged]]:
    if rule.bound in ("status", "fails_at"):
        told = judge_check if rule.bound == "status" else judge_finding
        yield from ((path, Judged(status, words)) for path, status, words in told(rule, held.now))
    else:
        yield from ((found.path, _judge_number(rule, found, held)) for found in find(rule.path, held.now))


def _judge_number(rule: Rule, found: Found, held: Held) -> Judged:
    if found.missing is not None:
        return Judged("not measurable", found.missing)
    if rule.bound == "is":
        status: Status = "passed" if found.value == rule.limit else "failed"
        return Judged(status, about_word(status, found, rule.limit), found.value)
    if isinstance(found.value, (bool, str)) or rule.limit is None:
        return Judged("not measurable", f"{found.value!r} is no number", found.value)
    if rule.bound == "max_regression":
        return _judge_regression(rule, found, held)
    status = status_of(found.value, found.interval, rule.bound, float(rule.limit))
    return Judged(status, about_limit(rule, status, found.value, found.interval), found.value, found.interval)


def _judge_regression(rule: Rule, found: Found, held: Held) -> Judged:
    if held.baseline is None:
        return Judged("not measurable", NO_BASELINE)
    share = float(rule.limit or 0) if rule.relative else 0.0
    worse = held.baseline.worsening(found, find(found.path, held.before)[0], share)
    if isinstance(worse, str):
        return Judged("not measurable", worse)
    allowed = float(rule.limit or 0) * (abs(worse.old) if rule.relative else 1)
    if worse.caveat is not None:
        return Judged("inconclusive", worse.caveat, worse.by, worse.interval, allowed)
    rounding = held.baseline.rounding(found.path)
    status = status_of(worse.by, worse.interval, "max", allowed)
    if status != "passed" and status_of(worse.by, worse.interval, "max", allowed + rounding) == "passed":
        told = f"{about_regression('passed', worse, allowed)}; up to {rounding:.1e} beyond that is rounding"
        return Judged("passed", told, worse.by, worse.interval, allowed)
    told = about_regression(status, worse, allowed)
    if share and worse.old == 0:
        told += f"; {share:.4g} times a baseline of 0 allows nothing, so give a limit in the number's own unit"
    return Judged(status, told, worse.by, worse.interval, allowed)


def _result(rule: Rule, path: str, judged: Judged, strict: bool) -> RuleResult:
    plain = rule.bound in ("status", "fails_at")
    return RuleResult(
        id=path if plain else f"{path}.{rule.bound}",
        path=path,
        status=judged.status,
        limit=rule.limit if judged.allowed is None else judged.allowed,
        value=judged.value,
        interval=judged.interval,
        sentence=judged.sentence,
        consequence=_consequence(rule, judged, strict),
    )


def _consequence(rule: Rule, judged: Judged, strict: bool) -> Consequence:
    """What a result does to the gate."""
    missing = (rule.no_baseline if judged.sentence == NO_BASELINE else None) or rule.not_measurable
    open_ones: dict[Status, Consequence] = {
        "passed": "pass",
        "failed": "fail",
        "inconclusive": rule.inconclusive,
        "not measurable": missing,
    }
    meant = open_ones[judged.status]
    if meant == "fail" and rule.level == "warn":
        meant = "warn"
    return "fail" if meant == "warn" and strict else meant


# Rules about self-checks and findings: what the report says in words, by id.


Answer = tuple[str, Status, str]  # path, status, sentence


def judge_check(rule: Rule, report: Mapping[str, Any]) -> Iterator[Answer]:
    """A self-check by its id. `*` stands for the agreement with the file's runtime and for every check.

    Assumptions are not among these: where one fails, the theory is not about this model, which is no fault.
    """
    checks = {check["id"]: check for check in report["checks"]}
    wanted = rule.path.partition(".")[2]
    every = [PARITY, *(id for id, check in checks.items() if check["kind"] == "check")]
    for id in every if wanted == "*" else [wanted]:
        status, words = _parity(report["model"]["parity"]) if id == PARITY else _check(checks.get(id))
        yield f"check.{id}", status, words


def judge_finding(rule: Rule, report: Mapping[str, Any]) -> Iterator[Answer]:
    """A finding by its id: fails where it is as grave as the rule says. `*` stands for all that are."""
    findings = {finding["id"]: finding for finding in report["findings"]}
    wanted = rule.path.partition(".")[2]
    least = LEVELS.index(str(rule.limit))
    grave = {id: finding for id, finding in findings.items() if LEVELS.index(finding["level"]) >= least}
    for id, finding in grave.items():
        if wanted in ("*", id):
            yield f"finding.{id}", "failed", f"{finding['level']}: {finding['title'].rstrip('.')}"
    if wanted not in grave and not (wanted == "*" and grave):
        yield rule.path, "passed", f"no such finding of level {rule.limit} or graver"


def _check(check: Mapping[str, Any] | None) -> tuple[Status, str]:
    if check is None:
        return "not measurable", "this report was made without it"
    words = check["explanation"].rstrip(".")
    if check["status"] == "skipped":
        return "not measurable", words
    measured = f" ({number(check['value'])}, tolerance {number(check['tolerance'])})" if _told(check) else ""
    return ("passed" if check["status"] == "passed" else "failed"), f"{check['title']}{measured}"


def _told(check: Mapping[str, Any]) -> bool:
    return check["value"] is not None and check["tolerance"] is not None


def _parity(parity: Mapping[str, Any] | None) -> tuple[Status, str]:
    if parity is None:
        return "not measurable", "the file has no runtime of its own to compare with"
    status: Status = "passed" if parity["max_abs_diff"] <= parity["tolerance"] else "failed"
    agrees = "agrees" if status == "passed" else "does not agree"
    difference = f"{number(parity['max_abs_diff'])}, tolerance {number(parity['tolerance'])}"
    return status, f"The network {agrees} with {parity['against']} ({difference})"
