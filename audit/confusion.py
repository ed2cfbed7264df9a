"""Which class is answered for which on the test split: counting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.blocks.gap import Confusion, Mistake
from audit.outcome import Outcome

MOST_CLASSES = 100  # beyond which the table would rule the report's size
LISTED = 20


def count_confusions(test: Outcome, classes: Sequence[str]) -> Confusion:
    """The table of right class by answer, and its largest mistakes."""
    right = test.labels.astype(np.int64)
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(table, (right, answers(test)), 1)
    mistakes = table - np.diag(table.diagonal())
    order = np.argsort(-mistakes, axis=None, kind="stable")[:LISTED]
    pairs = [divmod(int(place), len(classes)) for place in order]
    return Confusion(
        counts=table.tolist() if len(classes) <= MOST_CLASSES else None,
        most=[
            Mistake(label=classes[row], answer=classes[column], count=int(mistakes[row, column]))
            for row, column in pairs
            if mistakes[row, column]
        ],
        skipped=None if len(classes) <= MOST_CLASSES else f"more than {MOST_CLASSES} classes",
    )


def answers(outcome: Outcome) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The class that the model answers [n]: the largest score; with one score, its sign."""
    scores = outcome.scores
    return (scores[:, 0] >= 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(1).astype(np.int64)
