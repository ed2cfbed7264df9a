"""Self-checks: run on the user's own model, on every audit, and printed whatever they say."""

from __future__ import annotations

from audit.checks.arithmetic import check_curvature, check_determinism, check_single_precision
from audit.checks.rescaling import check_rescaling
from audit.checks.results import check_assumptions, check_reports
from audit.measures.contract import Audit
from audit.measures.suite import Results
from audit.report.blocks import Check

__all__ = ["run_checks"]


def run_checks(audit: Audit, results: Results) -> list[Check]:
    """Every check and assumption, in the order of the report; without a plan for more, those that cost nothing."""
    if audit.plan.stage("checks").form == "skipped":
        return [*check_reports(results), *check_assumptions(audit, results)]
    return [
        *check_reports(results),
        *check_rescaling(audit),
        check_curvature(audit),
        check_determinism(audit),
        check_single_precision(audit),
        *check_assumptions(audit, results),
    ]
