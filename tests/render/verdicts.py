"""Reports and verdicts with anything in them, for the formats that other programs read."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from reports import classification, regression

from audit.policy import RuleResult, Verdict

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
    report = copy.deepcopy(draw(st.sampled_from([classification(), regression()])))
    report["model"]["path"], report["data"]["path"] = draw(ODD), draw(ODD)
    report["warnings"] = draw(st.lists(ODD, max_size=2))
    for check in report["checks"]:
        check["status"] = draw(st.sampled_from(["passed", "failed", "skipped"]))
        check["title"], check["value"] = draw(ODD), draw(st.none() | st.floats(allow_nan=False, allow_infinity=False))
    report["findings"] = draw(
        st.lists(st.builds(finding, st.sampled_from(LEVELS), id=ODD, title=ODD, explanation=ODD), max_size=4)
    )
    return report


odd_verdicts = st.lists(
    st.builds(result, st.sampled_from(CONSEQUENCES), st.sampled_from(STATUSES), ODD), min_size=1, max_size=5
).map(lambda results: verdict(*results))
