"""Rules about self-checks and findings: what the report says in words, by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.blocks.checks import PARITY
from audit.damage import LEVELS
from audit.policy.rules import Rule, Status
from audit.policy.words import number

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
