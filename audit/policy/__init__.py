"""The gate: a table of rules, a finished report, and what the one says about the other. Never wakes torch.

Here is what a policy says, what a verdict holds, and the lines that tell it: plain values, known to the renderers, too.
`parse.py` reads rules from TOML or takes them from a program and refuses those that no report could be held against,
`baseline.py` compares with an earlier report, `judge.py` decides.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Bound = Literal["max", "min", "max_regression", "is", "fails_at", "status"]
Level = Literal["off", "warn", "error"]
Consequence = Literal["pass", "warn", "fail"]
Status = Literal["passed", "failed", "inconclusive", "not measurable"]
Interval = tuple[float, float] | None

NOT_PASSED: tuple[Status, ...] = ("failed", "inconclusive", "not measurable")
VERDICT_SCHEMA = "gen-audit/verdict/1"


@dataclass(frozen=True)
class Rule:
    """One limit on one number of the report, on one finding or on one self-check; `*` in the path stands for each."""

    path: str  # gap.error_gap, layers.*.flatness.kappa, finding.<id>, check.<id>
    bound: Bound  # which limit: `is` for words and booleans, `fails_at` for findings, `status` for self-checks
    limit: float | str | bool | None = None
    relative: bool = False  # max_regression = "10%": the limit is a share of the baseline's number
    level: Level = "error"  # warn: the rule can only ever warn
    inconclusive: Consequence = "warn"  # when the interval lies on both sides of the limit
    not_measurable: Consequence = "warn"  # when the report has no such number
    no_baseline: Consequence | None = None  # when there is nothing to regress from; None: as not_measurable


@dataclass(frozen=True)
class Policy:
    """The rules of a release, and where they were read."""

    rules: tuple[Rule, ...]
    source: str = "the default policy"


@dataclass(frozen=True)
class RuleResult:
    """What became of one rule at one number."""

    id: str  # the path with its layer named, and the limit: gap.error_gap.max
    path: str
    status: Status
    limit: float | str | bool | None
    value: float | str | bool | None  # for max_regression the difference from the baseline
    interval: Interval  # 95 %; None where the number is exact or has none
    sentence: str
    consequence: Consequence = "pass"  # what it does to the gate: nothing, a warning, or a failure


@dataclass(frozen=True, repr=False)
class Verdict:
    """The gate's answer: every result in the order of the policy, and whether the release passes."""

    results: tuple[RuleResult, ...]
    passed: bool
    policy: str = "the default policy"
    baseline: str | None = None
    strict: bool = False  # warnings were turned into failures

    def __repr__(self) -> str:
        """Two lines for a prompt; `to_dict` has every result."""
        head = f"Verdict(passed={self.passed}, policy={self.policy!r}, results={len(self.results)})"
        return f"{head}\n{verdict_line(self)}"

    def that(self, consequence: Consequence) -> tuple[RuleResult, ...]:
        """The results with this consequence."""
        return tuple(result for result in self.results if result.consequence == consequence)

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, as `gen-audit check --json` prints them."""
        return {"schema": VERDICT_SCHEMA, **asdict(self)}


def lines(verdict: Verdict, brief: bool = False) -> list[str]:
    """One line per result and one for the verdict; in brief only what warns or fails."""
    shown = [result for result in verdict.results if not brief or result.consequence != "pass"]
    standings = [_standing(result) for result in shown]
    wide, width = max(map(len, standings), default=0), max((len(result.id) for result in shown), default=0)
    rows = zip(standings, shown, strict=True)
    return [*(f"{stands:<{wide}}  {one.id:<{width}}  {one.sentence}" for stands, one in rows), verdict_line(verdict)]


def _standing(result: RuleResult) -> str:
    """The status, with a mark where it does less, or more, to the gate than its name says."""
    usual = "fail" if result.status == "failed" else "pass"
    mark = {"pass": "", "warn": " (warns)", "fail": " (fails)"}[result.consequence]
    return result.status if result.consequence == usual else f"{result.status}{mark}"


def verdict_line(verdict: Verdict) -> str:
    """The last line: whether the release passes, and what decided; a rule that only warns is counted once."""
    failures, warnings = verdict.that("fail"), verdict.that("warn")
    judged = f"{counted(len(verdict.results), 'rule')} of {verdict.policy}"
    warned = f", {counted(len(warnings), 'warning')}" if warnings else ""
    if not verdict.passed:
        return f"failed: {len(failures)} of {judged}{warned}: {', '.join(result.id for result in failures)}"
    silent = [result.status for result in verdict.results if result.consequence != "warn"]
    said = [f"{len(warnings)} warn{'s' if len(warnings) == 1 else ''}"] if warnings else []
    said += [f"{silent.count(status)} {status}" for status in NOT_PASSED if status in silent]
    if not said:
        return f"passed: {judged}"
    return f"passed: {silent.count('passed')} of {judged}; {', '.join(said)}"


def counted(count: int, thing: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
