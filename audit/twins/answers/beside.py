"""The report's block: everything that twins say of a model, put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from audit.data.dataset import Data
from audit.measures.report import Report
from audit.report.twins import HeldOut, Labels, Twins, TwinsOfKind
from audit.twins.answers.bands import inner_bands, test_band
from audit.twins.answers.data import curve, held_out
from audit.twins.answers.errors import labels_in_doubt, remedies, whose_errors
from audit.twins.answers.likeness import likeness
from audit.twins.index import Recipe, Twin, TwinSet
from audit.twins.kinds import KINDS

LISTED = 50  # labels in doubt that a report names
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
STARTS = {"torch": "PyTorch's start", "glorot": "Glorot's start", "he": "He's start"}
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
        held_out=held_out(twins, suspects) if twins.outcomes else HeldOut(why="no outcomes were kept"),
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


def _given(data: Data) -> NDArray[np.int64]:
    """The label of every train position that is in use; −1 of the others."""
    split = data.train
    positions = split.index if len(split.index) else np.arange(len(split), dtype=np.int64)
    given = np.full(max(split.total, int(positions.max()) + 1), -1, dtype=np.int64)
    given[positions] = split.y.astype(np.int64)
    return given
