"""Do the labels mean the model's outputs in another order? Asked always: two swapped classes hide in good scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audit.maths.assignment import best_assignment, cycles, sign_test
from audit.report.doctor import ClassOrder

RARELY = 0.001  # one correctly labelled model in a thousand, that may be called misordered
MOSTLY = 2 / 3  # of the answers within a circle that must go to the next class, not to the own one

Classes = NDArray[np.int64]


def class_order(labels: Classes, answers: Classes, names: Sequence[str], as_stored: Sequence[str]) -> ClassOrder:
    """The order of the classes that the answers [n] to samples with these labels [n] speak for.

    On every second sample of each class the best one-to-one assignment of labels to answers is found, and each circle
    of classes in it is tested on the other samples: are those of its classes answered by the next class in the circle
    rather than by their own? Were the order right, each such answer would at best be a fair coin's, also of two classes
    that look alike. `as_stored` are the classes as `--classes` has to name them.
    """
    first = _every_second(labels)
    own = np.arange(len(names))
    found = best_assignment(
        2.0 * len(names) * _confusion(labels[first], answers[first], len(names)) + np.eye(len(names))
    )
    tested, circles = _confusion(labels[~first], answers[~first], len(names)), cycles(found)
    chances = {tuple(circle): len(circles) * _chance(tested, circle, found) for circle in circles}
    wrong = [circle for circle, chance in chances.items() if chance <= RARELY]
    meant = own.copy()  # of each label, the output that means it
    for circle in wrong:
        meant[list(circle)] = found[list(circle)]
    moved = [label for circle in wrong for label in circle]
    label_of = np.argsort(meant)
    return ClassOrder(
        samples=len(labels),
        moved=[names[label] for label in moved],
        right=float((answers == labels).mean()),
        right_if_moved=float((answers == meant[labels]).mean()),
        p_value=min(1.0, max((chances[circle] for circle in wrong), default=min(chances.values(), default=1.0))),
        cure=f"--classes {_quoted([as_stored[label] for label in label_of])}" if moved else "",
    )


def _chance(counts: NDArray[np.float64], circle: Sequence[int], meant: Classes) -> float:
    """Of as many answers by the next class, among those by it and by the own one; 1 where they are not most."""
    own = sum(int(counts[label, label]) for label in circle)
    other = sum(int(counts[label, meant[label]]) for label in circle)
    return sign_test(other, own + other) if other >= MOSTLY * (own + other) > 0 else 1.0


def _confusion(labels: Classes, answers: Classes, classes: int) -> NDArray[np.float64]:
    """Samples by label (row) and answer (column) [C, C]."""
    return np.bincount(classes * labels + answers, minlength=classes**2).reshape(classes, classes).astype(np.float64)


def _every_second(labels: Classes) -> NDArray[np.bool_]:
    """Every second sample of each class [n]."""
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(labels), np.int64)
    starts = np.searchsorted(labels[order], labels[order])
    place[order] = np.arange(len(labels)) - starts
    return np.asarray(place % 2 == 0)


def _quoted(names: Sequence[str]) -> str:
    """Names for a command line."""
    joined = ",".join(names)
    plain = all(character.isalnum() or character in "_-.,+:@/" for character in joined)
    return joined if plain else "'" + joined.replace("'", "'\\''") + "'"
