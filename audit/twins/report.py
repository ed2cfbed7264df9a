"""From a finished audit and a folder of twins to the report with the model beside them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from audit.errors import UsageError, readable
from audit.findings import add_findings
from audit.measures.report import Report
from audit.report.twins import Twins
from audit.run.gallery import with_samples
from audit.run.pipeline import Audited, Sources
from audit.run.plan import budget_seconds
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins.answers.beside import beside_twins
from audit.twins.checked import ANEW
from audit.twins.index import INDEX, TwinSet, cached, read_twins
from audit.twins.make import Say, Wish, make_folder
from audit.twins.outcomes import measuring
from audit.twins.problem import set_problem

CLOSE = 0.01  # relative difference of two train losses, one of them perhaps on fewer samples
PICTURED = 8  # doubtful labels


def twins_for(asked: str, sources: Sources, settings: Settings, say: Say) -> tuple[TwinSet, Path]:
    """Those of a folder, or for an amount of time such as 10m those that it suffices for, kept in the user's cache."""
    folder = Path(asked)
    if (folder / INDEX).exists() or folder.is_dir():
        return read_twins(folder), folder
    try:
        wish = Wish(budget=budget_seconds(asked), say=say)
    except UsageError as error:
        raise UsageError(
            f"--twins: {asked!r} is no folder of twins, nor an amount of time; make one with `gen-audit twins`, or "
            "write 10m to have them made on the way."
        ) from error
    problem = set_problem(sources, settings, Progress())
    folder = cached(problem.about(None))
    return make_folder(problem, folder, wish), folder


def with_twins(audited: Audited, twins: TwinSet, folder: Path) -> Audited:
    """The audit's report beside its twins, its findings made anew."""
    report, audit = audited.report, audited.audit
    _check_same(report, twins, folder)
    if not twins.about.tail:  # twins may be shared by models of one architecture, data and train loss
        lean = measuring(audit.model, audit.data, audit.task, audit.settings)
        twins = replace(twins, model=lean.numbers(audit.model, audit.data, audit.task))
    with readable(UsageError, f"--twins {folder}", ANEW):  # positions and classes that the data do not have
        block = beside_twins(report, twins, folder, audit.data)
    gallery = None if report.gallery is None else with_samples(report.gallery, audit.data, _named(block))
    return replace(audited, report=add_findings(replace(report, twins=block, gallery=gallery)))


def _check_same(report: Report, twins: TwinSet, folder: Path) -> None:
    """Refuses twins of something else."""
    about = twins.about
    if (about.data, about.task) != (report.data.sha256, report.model.task):
        raise UsageError(f"--twins {folder}: holds twins that were made on other data; make them anew, on these.")
    if not math.isclose(about.target, report.gap.train_loss, rel_tol=CLOSE, abs_tol=1e-9) and _all_used(report):
        raise UsageError(
            f"--twins {folder}: holds twins of a model with train loss {about.target:.4g}, and this one has "
            f"{report.gap.train_loss:.4g}; make twins of this one."
        )


def _all_used(report: Report) -> bool:
    return report.data.train.samples == report.data.train.total


def _named(block: Twins) -> list[tuple[str, int]]:
    """Samples that the section shows."""
    errors, labels = block.errors, block.labels
    tests = [] if errors is None else [*errors.hard, *errors.own]
    train = [] if labels is None else [each.index for each in labels.samples[:PICTURED]]
    return [*(("test", index) for index in tests), *(("train", index) for index in train)]
