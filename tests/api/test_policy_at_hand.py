"""A policy given from Python: refused early, or passed, or raised with its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats import trained
from in_memory import audited, pairs, wine
from places import SUPPORT

from audit import PolicyFailed, Report, audit_model
from audit.errors import UsageError

EXAMPLE = SUPPORT / "example_report.json"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"policy": {"finding.nosuch": {}}}, "policy: [policy.finding.nosuch]: there is no finding 'nosuch'; "),
        ({"policy": 3}, "policy: 3 is none; give a Policy, a file, or rules in a dictionary."),
        ({"policy": {"gap.test_error": {"max": 1}}, "baseline": "report.json"}, "baseline: 'report.json' is no Report"),
        ({"baseline": Report.from_json(EXAMPLE.read_text(encoding="utf-8"))}, "baseline: only a policy compares"),
    ],
)
def test_a_gate_that_cannot_be_is_refused_before_the_model_is_looked_at(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        audit_model("no such model", "no such data", **given)
    assert str(caught.value).startswith(sentence)


def test_a_failed_policy_raises_with_report_and_verdict() -> None:
    train, test = pairs("relu")
    strict = {"gap.test_loss": {"max": 0.0}, "check.determinism": {}}
    with pytest.raises(PolicyFailed, match=r"^Sequential: fails 1 of 2 rules: gap\.test_loss\.max: ") as failure:
        audited(trained("relu"), train, test, policy=strict)
    assert failure.value.exit_code == 1
    assert not failure.value.verdict.passed and failure.value.report.gap.test_loss > 0


def test_a_report_checks_itself(tmp_path: Path) -> None:
    file = tmp_path / "gen-audit.toml"
    file.write_text("[policy.gap.test_loss]\nmax = 0.0\n", encoding="utf-8")
    assert not wine().check(file).passed
    by_default = wine().check(baseline=wine())
    assert by_default.passed and by_default.baseline == "Sequential"
