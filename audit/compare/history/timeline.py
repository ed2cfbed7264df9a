"""From the reports of a folder to its history: which audits belong together, how each number moved, what got worse."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from audit import __version__
from audit.compare import OBSERVED, OF_NETWORK, ON_SAMPLES, PRIMARY, WORSE, Named, read_folder, verdict
from audit.compare.comparable import architecture, at_one_train_loss, follows_train_loss, why_void
from audit.compare.compare import now
from audit.compare.differences import Asked, same_samples, split_difference
from audit.compare.history import NOTES, SCHEMA, Change, History, Line, Step, Trend, headline
from audit.maths.intervals import LEVEL
from audit.measures import Report
from audit.report.blocks import Reference, ReferenceNumber
from audit.report.fields import Compared
from audit.report.paths import find


def trace_history(reports: Sequence[Named], folder: Path, command: str) -> History:
    """The history of reports that are in the order of their making."""
    return History(
        schema=SCHEMA,
        created=now(),
        version=__version__,
        command=command,
        folder=str(folder),
        reports=len(reports),
        lines=[trace_line(members, str(folder)) for members in lines_of(reports)],
        notes=list(NOTES),
    )


def lines_of(reports: Sequence[Named]) -> list[list[Named]]:
    """Reports sorted into lines: each joins the first whose opening report has the same task and test samples."""
    lines: list[list[Named]] = []
    for each in reports:
        line = next((line for line in lines if _belongs(line[0], each)), None)
        lines.append([each]) if line is None else line.append(each)
    return lines


def _belongs(first: Named, other: Named) -> bool:
    same = first.report.model.task == other.report.model.task and first.report.model.loss == other.report.model.loss
    return same and same_samples(first.report, other.report, "test")


def trace_line(members: Sequence[Named], folder: str = "") -> Line:
    """One line: every audit beside the one before it and beside the best before it.

    Measured where nothing changes (500 samples, one in ten wrong): 3 % of the audits are called a regression; of lines
    of 5, 10 and 20 audits 7, 23 and 28 % name one (14, 40 and 75 % if the best had not been corrected for).
    """
    task = members[0].report.model.task
    entry = next(entry for entry in OBSERVED if entry.key == PRIMARY[task])
    steps: list[Step] = []
    before: Named | None = None
    best: Named | None = None
    earlier = 0
    for member in members:
        step = _step(member, before, best, earlier, entry)
        steps.append(step)
        if step.void is None:
            before, earlier = member, earlier + 1
            best = member if best is None or _value(member, entry) < _value(best, entry) else best
    first = next((step.report for step in steps if step.regression), None)
    data = members[-1].report.data
    return Line(
        data=data.path,
        test_samples=data.test.samples,
        primary=entry.key,
        steps=steps,
        trends=_trends(members),
        first_regression=first,
        headline=headline(steps, entry, folder),
    )


def _step(member: Named, before: Named | None, best: Named | None, earlier: int, entry: Compared) -> Step:
    """The best of several earlier audits is partly the luckiest: its interval is as sure as one beside each of them."""
    void = why_void([member])
    previous = _change(before, member, entry) if before is not None and void is None else None
    other = best is not None and best is not before and void is None
    record = _change(best, member, entry, LEVEL / earlier) if best is not None and other else None
    return Step(
        report=member.name,
        model=member.report.model.path,
        model_sha256=member.report.model.sha256,
        created=member.report.created,
        void=void,
        previous=previous,
        best=record,
        regression=any(change is not None and change.verdict == WORSE for change in (previous, record)),
    )


def _change(old: Named, new: Named, entry: Compared, level: float = LEVEL) -> Change | None:
    split, _, kind = entry.key.removeprefix("gap.").partition("_")
    part = split_difference(old.report, new.report, split, kind, Asked(level=level))
    if part.difference is None:
        return None
    told = verdict(entry, part.difference, part.ci95, part.identical)
    return Change(against=old.name, difference=part.difference, ci95=part.ci95, verdict=told, level=1 - level)


def _value(member: Named, entry: Compared) -> float:
    value = getattr(member.report.gap, entry.key.removeprefix("gap."))
    return float(value)


def _trends(members: Sequence[Named]) -> list[Trend]:
    """Every number that at least one of the audits has."""
    reports = [member.report for member in members]
    latest = reports[-1]
    test = [True] * len(members)  # a line shares its test samples
    train = [same_samples(latest, report, "train") for report in reports]
    trends = [
        *(_trend(entry, reports, test if _on_test(entry) else train) for entry in ON_SAMPLES),
        *(_trend(entry, reports, [networks_comparable(latest, one, entry) for one in reports]) for entry in OF_NETWORK),
    ]
    return [trend for trend in trends if any(value is not None for value in trend.values)]


def _on_test(entry: Compared) -> bool:
    """Whether a number rests on the test split alone: `gap.test_error`, or one of a block `test`."""
    return entry.key.split(".")[1].startswith("test")


def networks_comparable(one: Report, other: Report, entry: Compared) -> bool:
    """Whether a number from inside two networks may stand side by side: same layers and samples, about one loss."""
    matched = not follows_train_loss(entry.key) or at_one_train_loss(one, other)
    return matched and architecture(one) == architecture(other) and same_samples(one, other, "train")


def _trend(entry: Compared, reports: Sequence[Report], comparable: list[bool]) -> Trend:
    found = [find(entry.key, report)[0] for report in reports]
    return Trend(
        key=entry.key,
        name=entry.name,
        section=entry.section,
        kind=entry.kind,
        values=[None if part.missing else float(part.value) for part in found],
        ci95=[part.interval for part in found],
        comparable=comparable,
    )


# The band in which past audits of the same architecture and data lay.


NONE = "no report in the folder is of another model with this architecture on these train and test samples"


def past_audits(folder: Path | None) -> list[Named]:
    """The reports of the folder, if one was named."""
    return [] if folder is None else read_folder(folder)


def reference_band(report: Report, past: Sequence[Named], folder: Path) -> Reference:
    """Lowest, median and highest value of every number over the past audits that this one can stand beside."""
    reasons = [_why_not(report, each.report) for each in past]
    others = [each.report for each, why in zip(past, reasons, strict=True) if why is None]
    passed_over = len(past) - len(others)
    if not others:
        return Reference(folder=str(folder), reports=0, passed_over=passed_over, skipped=_none(reasons))
    numbers = [_number(entry, report, others) for entry in ON_SAMPLES]
    for entry in OF_NETWORK:
        numbers.append(_number(entry, report, [one for one in others if networks_comparable(report, one, entry)]))
    kept = [number for number in numbers if number is not None]
    return Reference(folder=str(folder), reports=len(others), passed_over=passed_over, numbers=kept)


def _why_not(report: Report, other: Report) -> str | None:
    """Why an audit cannot stand beside this one: another task, samples or layers, or the very same model."""
    if (report.model.task, report.model.loss) != (other.model.task, other.model.loss):
        return "of another task"
    if not all(same_samples(report, other, split) for split in ("train", "test")):
        return "on other samples"
    convolutions = [bool(each.settings.get("conv")) for each in (report, other)]
    if report.model.parameters == other.model.parameters and convolutions[0] != convolutions[1]:
        return f"audited {'with' if convolutions[1] else 'without'} --conv, unlike this one"
    if architecture(report) != architecture(other):
        return "of another architecture"
    return "of this very model" if report.model.sha256 == other.model.sha256 else None


def _none(reasons: Sequence[str | None]) -> str:
    """Why there is no band, with how many reports each reason took away."""
    counts = Counter(why for why in reasons if why is not None)
    return NONE + (f" ({'; '.join(f'{why}: {count}' for why, count in counts.items())})" if counts else "")


def _number(entry: Compared, report: Report, others: Sequence[Report]) -> ReferenceNumber | None:
    """The band of one number; None where this audit or all the others lack it."""
    own = find(entry.key, report)[0]
    found = [find(entry.key, other)[0] for other in others]
    values = [float(part.value) for part in found if not part.missing]
    if own.missing or not values:
        return None
    return ReferenceNumber(
        key=entry.key,
        name=entry.name,
        kind=entry.kind,
        value=float(own.value),
        low=min(values),
        median=statistics.median(values),
        high=max(values),
        reports=len(values),
    )
