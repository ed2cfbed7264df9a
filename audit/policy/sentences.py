"""The sentence of each result: what was measured, what was allowed, and what that means. No full stop at its end."""

from __future__ import annotations

from typing import Any

from audit.policy.baseline import Worsening
from audit.policy.rules import Interval, Rule, RuleResult, Status, Verdict
from audit.report.paths import Found

NOT_PASSED: tuple[Status, ...] = ("failed", "inconclusive", "not measurable")


def about_limit(rule: Rule, status: Status, value: float, interval: Interval) -> str:
    """`max` and `min`."""
    side = "at most" if rule.bound == "max" else "at least"
    return f"{_with_interval(value, interval)}, {side} {number(rule.limit)} allowed{_open(status)}"


def about_regression(status: Status, worse: Worsening, allowed: float) -> str:
    """`max_regression`."""
    by = _with_interval(worse.by, worse.interval)
    told = f"{by} for the worse" if worse.has_bad_side else f"higher by {by}"
    based = f" ({worse.basis})" if worse.basis else ""
    both = f"{number(worse.new)}, baseline {number(worse.old)}{based}"
    return f"{both}: {told}, at most {number(allowed)} allowed{_open(status)}"


def _open(status: Status) -> str:
    return "; the interval lies on both sides of that" if status == "inconclusive" else ""


def about_word(status: Status, found: Found, wanted: Any) -> str:
    """`is`."""
    told = f"is {_word(found.value)}" if status == "passed" else f"is {_word(found.value)}, not {_word(wanted)}"
    return f"{told}: {found.why.rstrip('.')}" if found.why else told


def number(value: Any) -> str:
    """A number as a reader takes it in: four digits.

    >>> number(0.07199999), number(1200), number(0.0)
    ('0.072', '1200', '0')
    """
    return f"{value:.4g}"


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
    """The last line: whether the release passes, and what decided."""
    failures, warnings = verdict.that("fail"), verdict.that("warn")
    judged = f"{counted(len(verdict.results), 'rule')} of {verdict.policy}"
    warned = f", {counted(len(warnings), 'warning')}" if warnings else ""
    if not verdict.passed:
        return f"failed: {len(failures)} of {judged}{warned}: {', '.join(result.id for result in failures)}"
    statuses = [result.status for result in verdict.results]
    open_ones = [f"{statuses.count(status)} {status}" for status in NOT_PASSED if status in statuses]
    if not open_ones:
        return f"passed: {judged}"
    return f"passed: {statuses.count('passed')} of {judged}; {', '.join(open_ones)}{warned}"


def counted(count: int, thing: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _with_interval(value: float, interval: Interval) -> str:
    if interval is None:
        return f"{number(value)} (no interval)" if isinstance(value, float) else number(value)
    return f"{number(value)} (95 % interval {number(interval[0])} to {number(interval[1])})"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
