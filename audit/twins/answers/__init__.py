"""The report's block: everything that twins say of a model, put together."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from audit.data.dataset import Data
from audit.errors import UsageError, readable
from audit.findings import add_findings
from audit.measures import Report
from audit.report.twins import HeldOut, Labels, Twins, TwinsOfKind
from audit.run.gallery import with_samples
from audit.run.pipeline import Audited, Sources
from audit.run.plan import budget_seconds
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import INDEX, Recipe, Twin, TwinSet, cached, read_twins
from audit.twins.answers.bands import inner_bands, likeness, test_band
from audit.twins.answers.data import curve, held_out
from audit.twins.answers.errors import labels_in_doubt, remedies, whose_errors
from audit.twins.checked import ANEW
from audit.twins.kinds import KINDS
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
    wish = Wish(budget=time_for(asked), say=say)
    problem = set_problem(sources, settings, Progress())
    folder = cached(problem.about(None))
    return make_folder(problem, folder, wish), folder


def time_for(asked: str) -> float | None:
    """Seconds to make twins in; None without a limit."""
    try:
        return budget_seconds(asked)
    except UsageError as error:
        raise UsageError(
            f"--twins: {asked!r} is no folder of twins, nor an amount of time; make one with `gen-audit twins`, or "
            "write 10m to have them made on the way."
        ) from error


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


# The block of the report.


LISTED = 50  # labels in doubt that a report names
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
STARTS = {"torch": "PyTorch's start", "glorot": "Glorot's start", "he": "He's start"}
NO_OUTCOMES = "no outcomes were kept"
NO_LABELS = "the samples have no class labels"


def beside_twins(report: Report, twins: TwinSet, folder: Path, data: Data) -> Twins:
    """The model of a report beside its twins; `data` are those of the audit."""
    labels = _labels(report, twins, data)
    regression = twins.about.task == "regression"
    value = report.gap.test_loss if regression else report.gap.test_error
    band = None if value is None else test_band(twins, value)
    suspects = [each.index for each in labels.samples]
    return Twins(
        folder=str(folder),
        whole=not twins.about.tail,
        recipe_given=twins.recipe_given,
        family=twins.family,
        recipe=in_words(twins.recipe),
        target=twins.about.target,
        made=len(twins.twins),
        kinds=_kinds(twins),
        left_out=dict(twins.left_out),
        test_error=None if regression else band,
        test_loss=band if regression else None,
        numbers=inner_bands(twins),
        likeness=None if twins.about.tail else likeness(twins),
        curve=curve(twins, report.data.test.samples),
        held_out=held_out(twins, suspects, _wrong_labels(report))
        if twins.outcomes
        else HeldOut(why="no outcomes were kept"),
        errors=whose_errors(report, twins),
        labels=replace(labels, samples=labels.samples[:LISTED]),
        remedies=remedies(twins),
        notes=list(twins.notes),
    )


def in_words(recipe: Recipe) -> str:
    """A recipe in one line.

    >>> in_words(Recipe(momentum=0.9, rate=0.01))
    "SGD with momentum 0.9, rate 0.01, batches of 32, PyTorch's start"
    """
    momentum = f" with momentum {recipe.momentum:g}" if recipe.momentum else ""
    decay = f", weight decay {recipe.decay:g}" if recipe.decay else ""
    start = STARTS[recipe.start]
    return (
        f"{OPTIMIZERS[recipe.optimizer]}{momentum}, rate {recipe.rate:.3g}, batches of {recipe.batch}{decay}, {start}"
    )


def _kinds(twins: TwinSet) -> list[TwinsOfKind]:
    told = {kind.name: kind for kind in KINDS}
    order = list(told)
    found = Counter((twin.kind, twin.family) for twin in twins.twins)
    rows = []
    for kind, family in sorted(found, key=lambda each: (each[1] != twins.family, _place(order, each[0]), each[1])):
        members = twins.of(kind, family)
        keys = sorted({key for twin in members for key in twin.numbers})
        regression = twins.about.task == "regression"
        rows.append(
            TwinsOfKind(
                name=kind,
                family=family,
                change=told[kind].change if kind in told else "a change of the owner's",
                question=told[kind].question if kind in told else "",
                made=len(members),
                reached=sum(twin.reached for twin in members),
                restarts=sum(twin.restarts for twin in members),
                test=[twin.test_loss if regression else twin.test_error or 0.0 for twin in members if _came_down(twin)],
                numbers={key: [twin.numbers[key] for twin in members if key in twin.numbers] for key in keys},
            )
        )
    return rows


def _came_down(twin: Twin) -> bool:
    """Whether its training came to its end: one that diverged for good says nothing of its kind."""
    return twin.reached or twin.matched


def _place(order: list[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _labels(report: Report, twins: TwinSet, data: Data) -> Labels:
    if data.classes is None or twins.about.task == "regression":
        return Labels(skipped=NO_LABELS)
    hygiene = None if report.hygiene is None else report.hygiene.suspected_mislabels
    neighbours = None if hygiene is None or hygiene.count is None else [each.index for each in hygiene.suspects]
    return labels_in_doubt(twins, _given(data), data.classes, neighbours)


def _wrong_labels(report: Report) -> float:
    """The largest share of train labels that may be wrong beyond those of test, where neighbours say that some are."""
    bounds = None if report.hygiene is None else report.hygiene.suspected_mislabels.estimated_rate_ci95
    return bounds[1] if bounds is not None and bounds[0] > 0 else 0.0


def _given(data: Data) -> NDArray[np.int64]:
    """The label of every train position that is in use; −1 of the others."""
    split = data.train
    positions = split.index if len(split.index) else np.arange(len(split), dtype=np.int64)
    given = np.full(max(split.total, int(positions.max()) + 1), -1, dtype=np.int64)
    given[positions] = split.y.astype(np.int64)
    return given
