"""Holds a report against a policy, rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from audit.measures import Report
from audit.measures.catalogue import CATALOGUE
from audit.policy import Consequence, Interval, Policy, Rule, RuleResult, Status, Verdict
from audit.policy.baseline import Baseline, Worsening, status_of
from audit.report import LEVELS, ParityReport
from audit.report.blocks import PARITY, Check
from audit.report.numbers import percent, points
from audit.report.paths import Found, find

NO_BASELINE = "no baseline was given"
SHARES = {"train_accuracy", "test_accuracy", "accuracy", "confidence"}
SHARES |= {each.key.rpartition(".")[2] for entry in CATALOGUE for each in entry.compared if each.kind != "number"}
"""Names of numbers that reports show in per cent."""


@dataclass(frozen=True)
class Judged:
    """One rule's answer about one number."""

    status: Status
    sentence: str
    value: float | str | bool | None = None
    interval: Interval = None
    allowed: float | None = None  # a relative limit in the number's own unit


def judge(policy: Policy, report: Report, baseline: Report | None = None, *, strict: bool = False) -> Verdict:
    """The verdict on a report. `strict` turns warnings into failures."""
    compared = None if baseline is None else Baseline(report, baseline)
    answers = [(rule, list(_answers(rule, report, compared))) for rule in policy.rules]
    named = {path for rule, found in answers if "*" not in rule.path for path, _ in found}
    results = tuple(
        _result(rule, path, judged, strict)
        for rule, found in answers
        for path, judged in found
        if rule.level != "off" and ("*" not in rule.path or path not in named)  # a rule of its own beats one for all
    )
    passed = all(result.consequence != "fail" for result in results)
    return Verdict(results, passed, policy.source, None if baseline is None else baseline.model.path, strict)


def _answers(rule: Rule, report: Report, baseline: Baseline | None) -> Iterator[tuple[str, Judged]]:
    if rule.bound in ("status", "fails_at"):
        told = judge_check if rule.bound == "status" else judge_finding
        yield from ((path, Judged(status, words)) for path, status, words in told(rule, report))
    else:
        yield from ((found.path, _judge_number(rule, found, baseline)) for found in find(rule.path, report))


def _judge_number(rule: Rule, found: Found, baseline: Baseline | None) -> Judged:
    if found.missing is not None:
        return Judged("not measurable", found.missing)
    if rule.bound == "is":
        status: Status = "passed" if found.value == rule.limit else "failed"
        return Judged(status, about_word(status, found, rule.limit), found.value)
    if isinstance(found.value, (bool, str)) or rule.limit is None:
        return Judged("not measurable", f"{found.value!r} is no number", found.value)
    if rule.bound == "max_regression":
        return _judge_regression(rule, found, baseline)
    status = status_of(found.value, found.interval, rule.bound, float(rule.limit))
    return Judged(status, about_limit(rule, status, found.value, found.interval), found.value, found.interval)


def _judge_regression(rule: Rule, found: Found, baseline: Baseline | None) -> Judged:
    if baseline is None:
        return Judged("not measurable", NO_BASELINE)
    share = float(rule.limit or 0) if rule.relative else 0.0
    worse = baseline.worsening(found, find(found.path, baseline.old)[0], share)
    if isinstance(worse, str):
        return Judged("not measurable", worse)
    allowed = float(rule.limit or 0) * (abs(worse.old) if rule.relative else 1)
    if worse.caveat is not None:
        return Judged("inconclusive", worse.caveat, worse.by, worse.interval, allowed)
    rounding = baseline.rounding(found.path)
    status = status_of(worse.by, worse.interval, "max", allowed)
    if status != "passed" and status_of(worse.by, worse.interval, "max", allowed + rounding) == "passed":
        told = f"{about_regression('passed', worse, allowed, found.path)}; up to {rounding:.1e} beyond that is rounding"
        return Judged("passed", told, worse.by, worse.interval, allowed)
    told = about_regression(status, worse, allowed, found.path)
    if share and worse.old == 0:
        told += f"; {share:.4g} times a baseline of 0 allows nothing, so give a limit in the number's own unit"
    return Judged(status, told, worse.by, worse.interval, allowed)


def _result(rule: Rule, path: str, judged: Judged, strict: bool) -> RuleResult:
    plain = rule.bound in ("status", "fails_at")
    return RuleResult(
        id=path if plain else f"{path}.{rule.bound}",
        path=path,
        status=judged.status,
        limit=rule.limit if judged.allowed is None else judged.allowed,
        value=judged.value,
        interval=judged.interval,
        sentence=judged.sentence,
        consequence=_consequence(rule, judged, strict),
    )


def _consequence(rule: Rule, judged: Judged, strict: bool) -> Consequence:
    """What a result does to the gate."""
    missing = (rule.no_baseline if judged.sentence == NO_BASELINE else None) or rule.not_measurable
    open_ones: dict[Status, Consequence] = {
        "passed": "pass",
        "failed": "fail",
        "inconclusive": rule.inconclusive,
        "not measurable": missing,
    }
    meant = open_ones[judged.status]
    if meant == "fail" and rule.level == "warn":
        meant = "warn"
    return "fail" if meant == "warn" and strict else meant


# Rules about self-checks and findings: what the report says in words, by id.


Answer = tuple[str, Status, str]  # path, status, sentence


def judge_check(rule: Rule, report: Report) -> Iterator[Answer]:
    """A self-check by its id. `*` stands for the agreement with the file's runtime and for every check.

    Assumptions are not among these: where one fails, the theory is not about this model, which is no fault.
    """
    checks = {check.id: check for check in report.checks}
    wanted = rule.path.partition(".")[2]
    every = [PARITY, *(id for id, check in checks.items() if check.kind == "check")]
    for id in every if wanted == "*" else [wanted]:
        status, words = _parity(report.model.parity) if id == PARITY else _check(checks.get(id))
        yield f"check.{id}", status, words


def judge_finding(rule: Rule, report: Report) -> Iterator[Answer]:
    """A finding by its id: fails where it is as grave as the rule says. `*` stands for all that are."""
    wanted = rule.path.partition(".")[2]
    enough = LEVELS[: [str(level) for level in LEVELS].index(str(rule.limit)) + 1]
    grave = {finding.id: finding for finding in report.findings if finding.level in enough}
    for id, finding in grave.items():
        if wanted in ("*", id):
            yield f"finding.{id}", "failed", f"{finding.level}: {finding.title.rstrip('.')}"
    if wanted not in grave and not (wanted == "*" and grave):
        yield rule.path, "passed", f"no such finding of level {rule.limit} or graver"


def _check(check: Check | None) -> tuple[Status, str]:
    if check is None:
        return "not measurable", "this report was made without it"
    words = check.explanation.rstrip(".")
    if check.status == "skipped":
        return "not measurable", words
    told = None not in (check.value, check.tolerance)
    measured = f" ({number(check.value)}, tolerance {number(check.tolerance)})" if told else ""
    return ("passed" if check.status == "passed" else "failed"), f"{check.title}{measured}"


def _parity(parity: ParityReport | None) -> tuple[Status, str]:
    if parity is None:
        return "not measurable", "the file has no runtime of its own to compare with"
    status: Status = "passed" if parity.max_abs_diff <= parity.tolerance else "failed"
    agrees = "agrees" if status == "passed" else "does not agree"
    difference = f"{number(parity.max_abs_diff)}, tolerance {number(parity.tolerance)}"
    return status, f"The network {agrees} with {parity.against} ({difference})"


# The sentence of each result: what was measured, what was allowed, and what that means. No full stop at its end.


def about_limit(rule: Rule, status: Status, value: float, interval: Interval) -> str:
    """`max` and `min`."""
    side, show = "at most" if rule.bound == "max" else "at least", percent if is_share(rule.path) else number
    return f"{_with_interval(value, interval, show)}, {side} {show(float(rule.limit or 0))} allowed{_open(status)}"


def about_regression(status: Status, worse: Worsening, allowed: float, path: str) -> str:
    """`max_regression`; shares in per cent, their differences in points."""
    show, apart = (percent, points) if is_share(path) else (number, number)
    by = _with_interval(worse.by, worse.interval, apart)
    told = f"{by} for the worse" if worse.has_bad_side else f"higher by {by}"
    based = f" ({worse.basis})" if worse.basis else ""
    both = f"{show(worse.new)}, baseline {show(worse.old)}{based}"
    return f"{both}: {told}, at most {apart(allowed)} allowed{_open(status)}"


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


def is_share(path: str) -> bool:
    """Whether the number at a path is shown in per cent, as the report shows it.

    >>> is_share("gap.test_error"), is_share("gap.per_class.7.test_error"), is_share("gap.test_loss")
    (True, True, False)
    """
    return path.rpartition(".")[2] in SHARES


def _with_interval(value: float, interval: Interval, show: Callable[[Any], str] = number) -> str:
    if interval is None:
        return f"{show(value)} (no interval)" if isinstance(value, float) else number(value)
    low, high = map(show, interval)
    return f"{show(value)} (95 % interval {low.removesuffix(' points')} to {high})"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
