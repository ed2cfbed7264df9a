"""Policies as a program writes them, and what it catches when a release fails one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.errors import AuditError, UsageError
from audit.policy.read import default_policy, parse_policy, read_policy
from audit.policy.rules import Policy, Verdict
from audit.policy.sound import check_rule

if TYPE_CHECKING:
    from audit.report import Report

PolicyLike = Policy | Mapping[str, Any] | Path | str | None


def as_policy(policy: PolicyLike) -> Policy:
    """A policy as it is, from a file, from rules such as `{"gap.error_gap": {"max": 0.05}}`, or the default."""
    if policy is None:
        return default_policy()
    if isinstance(policy, Mapping):
        return parse_policy(policy, "policy")
    if isinstance(policy, (str, Path)):
        return read_policy(Path(policy))
    if not isinstance(policy, Policy):
        raise UsageError(f"policy: {policy!r} is none; give a Policy, a file, or rules in a dictionary.")
    for rule in policy.rules:
        check_rule(rule, f"policy: [policy.{rule.path}]")
    return policy


def as_baseline(baseline: Report | None) -> Report | None:
    """The earlier report, or a sentence for what is none, such as the name of its file."""
    from audit.report import Report

    if baseline is not None and not isinstance(baseline, Report):
        raise UsageError(f"baseline: {baseline!r} is no Report; Report.from_json(text) makes one of a report.json.")
    return baseline


class PolicyFailed(AuditError):
    """A release that its policy does not let through; `report` and `verdict` say why."""

    exit_code = 1

    def __init__(self, report: Report, verdict: Verdict) -> None:
        self.report, self.verdict = report, verdict
        failed = verdict.that("fail")
        named = "; ".join(f"{result.id}: {result.sentence}" for result in failed)
        super().__init__(f"{report.model.path}: fails {len(failed)} of {len(verdict.results)} rules: {named}.")
