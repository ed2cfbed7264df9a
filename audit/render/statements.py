"""What an audit says that a machine may act on, whatever format carries it: statements, and the numbers of each split.

Without a verdict a failed self-check is a failure, and nothing else is: findings inform. With a verdict the policy
alone decides, so that the failures in a file are exactly the rules that fail the gate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from audit.measures.gap.block import GapReport
from audit.measures.report import Report
from audit.report.blocks import Check
from audit.report.fields import Interval
from audit.report.report import Finding

if TYPE_CHECKING:  # a policy compares, which takes numpy
    from audit.policy import RuleResult, Verdict

Group = Literal["rule", "warning", "check", "assumption", "finding"]
Outcome = Literal["passed", "failed", "open"]
Loudness = Literal["error", "warning", "note", "none"]

LOUDNESS: tuple[Loudness, ...] = ("error", "warning", "note", "none")
OF_FINDING: dict[str, Loudness] = {"concern": "warning", "watch": "note"}


@dataclass(frozen=True)
class Statement:
    """A rule, a warning, a self-check, an assumption or a finding, with what became of it."""

    group: Group
    id: str
    title: str
    text: str
    outcome: Outcome = "passed"  # open: could not be told, or does not decide
    level: Loudness = "none"  # how loudly to say it
    advice: str = ""
    source: str = ""

    @property
    def key(self) -> str:
        """A name that is unique over the groups, such as check/determinism."""
        return f"{self.group}/{self.id}"


def statements(report: Report, verdict: Verdict | None = None) -> list[Statement]:
    """Everything the report says, rules first, in the report's order."""
    checks = [_check(check, decides=verdict is None) for check in report.checks]
    said = [*map(_warning, report.warnings), *checks, *map(_finding, report.findings)]
    if verdict is None:
        return said
    subjects = {_subject(statement): statement for statement in said}
    loud = {result.path for result in verdict.results if result.consequence != "pass"}
    rules = [_rule(result, subjects.get(result.path)) for result in verdict.results]
    return [*rules, *(replace(each, level="none") if _subject(each) in loud else each for each in said)]


def loudest_first(said: list[Statement]) -> list[Statement]:
    """Those that call for attention, errors before warnings before notes."""
    loud = [statement for statement in said if statement.level != "none"]
    return sorted(loud, key=lambda statement: LOUDNESS.index(statement.level))


def _subject(statement: Statement) -> str:
    """What a policy calls a check or a finding; where a rule speaks up about it, the rule alone does."""
    return f"{'finding' if statement.group == 'finding' else 'check'}.{statement.id}"


def _rule(result: RuleResult, about: Statement | None) -> Statement:
    loud: dict[str, tuple[Outcome, Loudness]] = {"fail": ("failed", "error"), "warn": ("open", "warning")}
    outcome, level = loud.get(result.consequence, ("passed" if result.status == "passed" else "open", "none"))
    text = f"{result.id} {result.status}: {result.sentence}."
    title = f"Policy: {result.id}"
    if about is None or outcome == "passed":
        return Statement("rule", result.id, title, text, outcome, level)
    return Statement("rule", result.id, title, f"{text} {about.text}", outcome, level, about.advice, about.source)


def _warning(sentence: str) -> Statement:
    return Statement("warning", "before-any-number", "To know before any number", sentence, "open", "warning")


def _check(check: Check, decides: bool) -> Statement:
    outcome: Outcome = "passed" if check.status == "passed" else "open"
    level: Loudness = "none"
    group: Group = "check" if check.kind == "check" else "assumption"
    if check.status == "failed":
        outcome = "failed" if group == "check" and decides else "open"
        level = "note" if group == "assumption" else "error" if decides else "warning"
    return Statement(group, check.id, check.title, _measured(check), outcome, level)


def _measured(check: Check) -> str:
    """What was done, and the number it gave."""
    opening = {"failed": "This does not hold here. "}.get(check.status, "")
    if check.value is None or check.tolerance is None:
        return f"{opening}{check.explanation}"
    return f"{opening}{check.explanation} Measured {check.value:.3g}, allowed {check.tolerance:.3g}."


def _finding(finding: Finding) -> Statement:
    return Statement(
        group="finding",
        id=finding.id,
        title=finding.title,
        text=finding.explanation,
        level=OF_FINDING.get(finding.level, "none"),
        advice=finding.advice,
        source=finding.source,
    )


# How well the model does on each split, as the rows that model cards and bills of materials have for it.


LOSSES = {"cross_entropy": "mean cross-entropy", "bce": "mean binary cross-entropy", "mse": "mean half squared error"}


@dataclass(frozen=True)
class Metric:
    """One number with its 95 % interval, where it has one."""

    kind: str  # loss, error, accuracy, rmse, r2
    name: str
    slice: str  # train, test, gap, or the class
    value: float
    interval: Interval = None


def metrics(report: Report) -> list[Metric]:
    """Every number of the gap that the task has, test before train, then the classes."""
    gap, loss = report.gap, LOSSES[report.model.loss]
    kinds = {"loss": loss, "error": "error", "accuracy": "accuracy", "rmse": "root mean squared error", "r2": "R²"}
    found = [
        Metric(kind, name, split, getattr(gap, f"{split}_{kind}"), _interval(gap, split, kind))
        for split in ("test", "train")
        for kind, name in kinds.items()
        if getattr(gap, f"{split}_{kind}") is not None
    ]
    gaps = (("loss", gap.loss_gap, gap.loss_gap_ci95), ("error", gap.error_gap, gap.error_gap_ci95))
    found += [
        Metric(kind, f"{kinds[kind]}, test minus train", "gap", value, interval)
        for kind, value, interval in gaps
        if value is not None
    ]
    return found + [
        Metric("error", "error", f"test, class {each.name}", each.test_error)
        for each in gap.per_class
        if each.test_error is not None
    ]


def _interval(gap: GapReport, split: str, kind: str) -> Interval:
    """The accuracy is one minus the error, and so is its interval."""
    if kind == "accuracy":
        error: Interval = getattr(gap, f"{split}_error_ci95")
        return None if error is None else (1 - error[1], 1 - error[0])
    interval: Interval = getattr(gap, f"{split}_{kind}_ci95")
    return interval
