"""A history in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from audit.compare.result import WORSE
from audit.compare.sentences import NAMES, with_sign
from audit.history.result import Change, Step
from audit.report.fields import Compared
from audit.report.numbers import interval, points

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
        sentences.append(f"First regression: {inside(folder, worse[0].report)}. {_told(worse[0], entry, folder)}")
    if len(worse) > 1:
        later = "1 later audit is" if len(worse) == 2 else f"{len(worse) - 1} later audits are"
        sentences.append(f"{later} worse than one before, too.")
    sentences += [f"Void: {step.void}" for step in steps if step.void]
    return sentences


def _told(step: Step, entry: Compared, folder: str) -> str:
    change = next(each for each in (step.previous, step.best) if each is not None and each.verdict == WORSE)
    against = "the audit before it" if change is step.previous else "the best audit before it"
    other, by = inside(folder, change.against), shown_change(change, entry.kind)
    return f"Its {NAMES[entry.key]} differs from that of {against}, {other}, by {by}."


def inside(folder: str, report: str) -> str:
    """A report's path without the folder that holds all of them.

    >>> inside("runs", "runs/3/report.json"), inside("", "report.json")
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
