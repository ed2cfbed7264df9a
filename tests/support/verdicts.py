"""Reports and verdicts with anything in them, for the formats that other programs read."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from reports import classification, regression

from audit.policy import RuleResult, Verdict

EXAMPLES = (classification(), regression())
ODD = st.text(st.characters(exclude_categories=()), max_size=12)  # control characters and lone surrogates too
LEVELS = ("good", "note", "watch", "concern")
CONSEQUENCES = ("pass", "warn", "fail")
STATUSES = ("passed", "failed", "inconclusive", "not measurable")


def finding(level: str = "concern", **changes: str) -> dict[str, Any]:
    words = {"id": "gap", "title": "A gap", "explanation": "It is there.", "advice": "Look.", "source": "counting"}
    return {**words, "level": level, "evidence": {}, **changes}


def result(consequence: str = "fail", status: str = "failed", name: str = "gap.error_gap.max") -> RuleResult:
    return RuleResult(name, name, status, 0.05, 0.072, (0.06, 0.08), "beyond its limit", consequence)  # type: ignore[arg-type]


def verdict(*results: RuleResult) -> Verdict:
    return Verdict(results, passed=all(each.consequence != "fail" for each in results))


@st.composite
def odd_reports(draw: st.DrawFn) -> dict[str, Any]:
    """An example whose names, statuses and findings are anything."""
    report = draw(st.sampled_from(EXAMPLES))
    value = st.none() | st.floats(allow_nan=False, allow_infinity=False)
    checks = [
        {
            **check,
            "status": draw(st.sampled_from(["passed", "failed", "skipped"])),
            "title": draw(ODD),
            "value": draw(value),
        }
        for check in report["checks"]
    ]
    found = st.builds(finding, st.sampled_from(LEVELS), id=ODD, title=ODD, explanation=ODD)
    return {
        **report,
        "model": {**report["model"], "path": draw(ODD)},
        "data": {**report["data"], "path": draw(ODD)},
        "warnings": draw(st.lists(ODD, max_size=2)),
        "checks": checks,
        "findings": draw(st.lists(found, max_size=4)),
    }


odd_verdicts = st.lists(
    st.builds(result, st.sampled_from(CONSEQUENCES), st.sampled_from(STATUSES), ODD), min_size=1, max_size=5
).map(lambda results: verdict(*results))
