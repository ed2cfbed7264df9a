"""Reports to judge: the two examples, changed as a test needs them."""

from __future__ import annotations

import json
from typing import Any

from reports import classification, regression

from audit.measures import Report
from audit.policy import RuleResult, Verdict
from audit.policy.judge import judge
from audit.policy.parse import parse_policy


def example(**changes: Any) -> Report:
    """The classification example with some of its blocks replaced."""
    return Report.from_json(json.dumps({**classification(), **changes}))


def regression_example() -> Report:
    return Report.from_json(json.dumps(regression()))


def layers(**flatness: float) -> list[dict[str, Any]]:
    """The example's layers with other flatness numbers in each."""
    return [layer | {"flatness": layer["flatness"] | flatness} for layer in classification()["layers"]]


def outcomes(wrong: list[int], loss: list[float], sha256: str = "same") -> dict[str, Any]:
    """The same samples as both splits."""
    split = {"sha256": sha256, "samples": len(loss), "positions": list(range(len(loss))), "loss": loss, "wrong": wrong}
    return {"train": split, "test": split}


def verdict(table: dict[str, Any], report: Report, baseline: Report | None = None, strict: bool = False) -> Verdict:
    return judge(parse_policy(table, "test"), report, baseline, strict=strict)


def only(table: dict[str, Any], report: Report, baseline: Report | None = None, strict: bool = False) -> RuleResult:
    """The one result of a policy of one rule."""
    (result,) = verdict(table, report, baseline, strict).results
    return result
