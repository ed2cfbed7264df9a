"""`History`: the audits of a folder in their order, as plain values, and what they say in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from audit.compare.result import WORSE
from audit.compare.sentences import NAMES, with_sign
from audit.report.fields import Compared, Interval, Kind, says
from audit.report.numbers import interval, points
from audit.report.schema import Document

SCHEMA = "gen-audit/history/1"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One audit's primary number beside that of an earlier one, on the same samples."""

    against: str = says("the earlier report")
    difference: float
    ci95: Interval = says("interval of the difference: 95 %, beside the best wider, at the confidence `level`")
    level: float = says("confidence of the interval", default=0.95)
    verdict: str = says("better, worse, the same, cannot tell, no interval")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One audit."""

    report: str
    model: str
    model_sha256: str
    created: str
    void: str | None = says("why its test split is no evidence; it is then no yardstick for later ones")
    previous: Change | None = says("beside the audit before it", default=None)
    best: Change | None = says("beside the best audit before it, where that is another one", default=None)
    regression: bool = says("worse than the one before it or than the best before it", default=False)


@dataclass(frozen=True, kw_only=True)
class Trend:
    """One number along the audits; null where an audit does not have it."""

    key: str = says("its path in report.json")
    name: str
    section: str
    kind: Kind
    values: list[float | None]
    ci95: list[Interval]
    comparable: list[bool] = says("whether the audit's value can stand beside the latest one's")


@dataclass(frozen=True, kw_only=True)
class Line:
    """Audits that can be compared: one task, the same test samples."""

    data: str
    test_samples: int
    primary: str = says("key of the number that regressions are called by")
    steps: list[Step]
    trends: list[Trend]
    first_regression: str | None = says("the first report that is worse than one before it")
    headline: list[str]


@dataclass(frozen=True, kw_only=True)
class History(Document):
    """The history of a folder, complete."""

    folder: str
    reports: int
    lines: list[Line]
    notes: list[str] = field(default_factory=list)


# A history in sentences.


NOTES = (
    "Audits stand in the order in which they were made. Each is compared with the one before it and with the best "
    "before it; a regression is called where the interval of the difference lies above zero. It is a 95 % interval "
    "beside the one before; beside the best it is wider, since the best of k earlier audits is partly the luckiest: a "
    "(100 − 5/k) % interval. Where nothing changes, an audit is called a regression at most one time in twenty, so a "
    "long line may well hold a false call: confirm a regression on new samples.",
    "Audits whose test split is void are drawn, but nothing is compared with them.",
    "Train numbers and gaps are drawn for those audits only that have the train samples of the latest one. Numbers "
    "from inside the network are drawn for those among them that have the layers of the latest one and, where the "
    "number follows a classifier's train loss, its train loss within 5 %.",
)


def headline(steps: Sequence[Step], entry: Compared, folder: str = "") -> list[str]:
    """What happened along one line of audits."""
    name, worse = NAMES[entry.key], [step for step in steps if step.regression]
    sentences = []
    if len(steps) == 1:
        return ["One audit: there is nothing to compare it with yet."]
    if not worse:
        sentences.append(f"No regression: in {len(steps)} audits the {name} never got worse beyond chance.")
    else:
        first = within_folder(folder, worse[0].report)
        sentences.append(f"First regression: {first}. {_told(worse[0], entry, folder)}")
    if len(worse) > 1:
        later = "1 later audit is" if len(worse) == 2 else f"{len(worse) - 1} later audits are"
        sentences.append(f"{later} worse than one before, too.")
    sentences += [f"Void: {step.void}" for step in steps if step.void]
    return sentences


def _told(step: Step, entry: Compared, folder: str) -> str:
    change = next(each for each in (step.previous, step.best) if each is not None and each.verdict == WORSE)
    against = "the audit before it" if change is step.previous else "the best audit before it"
    other, by = within_folder(folder, change.against), shown_change(change, entry.kind)
    return f"Its {NAMES[entry.key]} differs from that of {against}, {other}, by {by}."


def within_folder(folder: str, report: str) -> str:
    """A report's path without the folder that holds all of them.

    >>> within_folder("runs", "runs/3/report.json"), within_folder("", "report.json")
    ('3/report.json', 'report.json')
    """
    return report.removeprefix(folder).lstrip("/\\") or report


def shown_change(change: Change, kind: str, brackets: str = " ({level} interval {bounds})") -> str:
    """The difference with its interval."""
    bounds, difference = "", points(change.difference) if kind == "percent" else with_sign(change.difference)
    if change.ci95 is not None:
        bounds = interval(change.ci95, "points") if kind == "percent" else " to ".join(map(with_sign, change.ci95))
    level = f"{100 * change.level:.4g} %"
    return difference + (brackets.format(bounds=bounds, level=level) if bounds else "")
