"""Audits over time: the reports of a folder in their order, and what changed along the way. Never wakes torch.

Here is what a history is, as plain values, and what it says in sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit import __version__
from audit.compare import WORSE, Named, report_files, report_in
from audit.compare.comparable import why_void
from audit.compare.compare import now
from audit.compare.sentences import NAMES, with_sign
from audit.errors import UsageError
from audit.measures import Report
from audit.report import LEVELS
from audit.report.fields import Compared, Document, Interval, Kind, says
from audit.report.numbers import interval, points

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


# Many models at a glance: one row for each report of a folder, those in which most was found first.


OVERVIEW_SCHEMA = "gen-audit/overview/1"
HEAVY = ("concern", "watch")


@dataclass(frozen=True, kw_only=True)
class OverviewRow:
    """One report."""

    report: str = says("its path")
    page: str = says("what to open: the page beside it, or itself where there is none")
    name: str = says("its folder or file within the folder of all of them")
    model: str
    data: str
    task: str
    created: str
    test_samples: int
    concerns: int
    watches: int
    found: list[str] = says("level and title of what asks for attention, gravest first")
    number: str = says("test_error or test_rmse: what is shown of the model")
    kind: Kind = says("percent or number: how it is shown")
    test: float
    test_ci95: Interval
    train: float
    void: str | None = says("why its test split is no evidence", default=None)


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A file that should be a report and is none."""

    path: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Overview(Document):
    """All reports of a folder."""

    folder: str
    rows: list[OverviewRow] = says("most concerns first, then most to watch, then the largest test error")
    broken: list[Broken]


def make_overview(folder: Path, command: str) -> Overview:
    """Reads every report of the folder and its folders; one that is broken is named, and stops nothing."""
    reports: list[Named] = []
    broken: list[Broken] = []
    for path in report_files(folder):
        found = _report_or_why(path)
        if isinstance(found, Report):
            reports.append(Named(str(path), found))
        elif found is not None:
            broken.append(Broken(path=str(path), why=found))
    if not reports and not broken:
        raise UsageError(f"{folder}: holds no report of gen-audit; put report.json files into it, or into its folders.")
    return Overview(
        schema=OVERVIEW_SCHEMA,
        created=now(),
        version=__version__,
        command=command,
        folder=str(folder),
        rows=ranked([row_of(each, folder) for each in reports]),
        broken=broken,
    )


def _report_or_why(path: Path) -> Report | str | None:
    """The report in a file, or why it cannot be read; None where the file is something else."""
    try:
        found = report_in(path)
    except UsageError as error:
        return str(error).removeprefix(f"{path}: ")
    except RecursionError:
        return "is no report: it is nested too deeply; make it anew with `gen-audit report`."
    damaged = found is None and path.name == "report.json"
    return "is no report, or only a part of one; make it anew with `gen-audit report`." if damaged else found


def ranked(rows: Sequence[OverviewRow]) -> list[OverviewRow]:
    """What needs a look first; errors of classifiers before those of regressions, which have no common scale."""
    return sorted(rows, key=lambda row: (-row.concerns, -row.watches, row.kind != "percent", -row.test, row.name))


def row_of(named: Named, folder: Path) -> OverviewRow:
    """What is said of one report."""
    report, path = named.report, Path(named.name)
    page = path.with_suffix(".html")
    levels = [finding.level for finding in report.findings]
    grave = sorted((each for each in report.findings if each.level in HEAVY), key=lambda each: LEVELS.index(each.level))
    called = within_folder(str(folder), named.name)
    return OverviewRow(
        report=named.name,
        page=str(page if page.exists() else path),
        name=str(Path(called).parent) if path.name == "report.json" and Path(called).parent.name else called,
        model=report.model.path,
        data=report.data.path,
        task=report.model.task,
        created=report.created,
        test_samples=report.data.test.samples,
        concerns=levels.count("concern"),
        watches=levels.count("watch"),
        found=[f"{each.level}: {each.title}" for each in grave],
        void=why_void([named]),
        **_shown(report),
    )


def _shown(report: Report) -> dict[str, Any]:
    gap = report.gap
    found: tuple[Any, ...]
    if gap.test_error is not None and gap.train_error is not None:
        found = ("test_error", "percent", gap.test_error, gap.test_error_ci95, gap.train_error)
    elif gap.test_rmse is not None and gap.train_rmse is not None:
        found = ("test_rmse", "number", gap.test_rmse, gap.test_rmse_ci95, gap.train_rmse)
    else:
        found = ("test_loss", "number", gap.test_loss, gap.test_loss_ci95, gap.train_loss)
    return dict(zip(("number", "kind", "test", "test_ci95", "train"), found, strict=True))
