"""Policies as a program writes them, and what it catches when a release fails one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.errors import AuditError
from audit.policy.read import default_policy, parse_policy, read_policy
from audit.policy.rules import Policy, Verdict

if TYPE_CHECKING:
    from audit.report import Report

PolicyLike = Policy | Mapping[str, Any] | Path | str | None


def as_policy(policy: PolicyLike) -> Policy:
    """A policy as it is, from a file, from rules such as `{"gap.error_gap": {"max": 0.05}}`, or the default."""
    if policy is None:
        return default_policy()
    if isinstance(policy, Policy):
        return policy
    return parse_policy(policy, "policy") if isinstance(policy, Mapping) else read_policy(Path(policy))


class PolicyFailed(AuditError):
    """A release that its policy does not let through; `report` and `verdict` say why."""

    exit_code = 1

    def __init__(self, report: Report, verdict: Verdict) -> None:
        self.report, self.verdict = report, verdict
        failed = verdict.that("fail")
        named = "; ".join(f"{result.id}: {result.sentence}" for result in failed)
        super().__init__(f"{report.model.path}: fails {len(failed)} of {len(verdict.results)} rules: {named}.")
