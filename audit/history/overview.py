"""Many models at a glance: one row for each report of a folder, those in which most was found first. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit import __version__
from audit.compare.comparable import Named, why_void
from audit.compare.compare import now
from audit.errors import UsageError
from audit.history.result import within_folder
from audit.history.timeline import report_files, report_in
from audit.measures.report import Report
from audit.report.fields import Interval, Kind, says
from audit.report.report import LEVELS
from audit.report.schema import Document

SCHEMA = "gen-audit/overview/1"
HEAVY = ("concern", "watch")


@dataclass(frozen=True, kw_only=True)
class Audited:
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
    rows: list[Audited] = says("most concerns first, then most to watch, then the largest test error")
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
        schema=SCHEMA,
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


def ranked(rows: Sequence[Audited]) -> list[Audited]:
    """What needs a look first; errors of classifiers before those of regressions, which have no common scale."""
    return sorted(rows, key=lambda row: (-row.concerns, -row.watches, row.kind != "percent", -row.test, row.name))


def row_of(named: Named, folder: Path) -> Audited:
    """What is said of one report."""
    report, path = named.report, Path(named.name)
    page = path.with_suffix(".html")
    levels = [finding.level for finding in report.findings]
    grave = sorted((each for each in report.findings if each.level in HEAVY), key=lambda each: LEVELS.index(each.level))
    called = within_folder(str(folder), named.name)
    return Audited(
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
