"""Does the difference in loss rest on a handful of samples, or on a small test set? Then its interval is less sure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.compare.pairs import pair
from audit.report import Report

HANDFUL = 10  # samples, and at most a twentieth of all
SMALL = 200  # below this the interval of a skewed mean misses too often; see means.py


def few_samples_notes(old: Report, new: Report) -> list[str]:
    """What a reader of the test loss must know; nothing where many samples share in it."""
    pairs = pair(old, new, "test")
    if pairs is None or not pairs.enough or pairs.identical("loss"):
        return []
    n, carriers, notes = len(pairs), carrying_half(pairs.new.loss - pairs.old.loss), []
    if carriers <= min(HANDFUL, n / 20):
        few = "One sample makes" if carriers == 1 else f"{carriers} samples make"
        notes.append(
            f"{few} up more than half of all that changed in the test loss, of {n:,} samples: its mean rests on very "
            "few of them, and its interval is less sure than it looks. Look at these samples before trusting it."
        )
    if n < SMALL:
        notes.append(
            f"With {n:,} test samples, a kind of sample rarer than about 1 in {max(2, n // 3):,} may be missing. "
            "No interval knows of it: a mean loss that rare, costly mistakes decide can be worse than it looks."
        )
    return notes


def carrying_half(differences: NDArray[np.float64]) -> int:
    """How many samples, the largest first, make up more than half of the sum of |d|.

    >>> carrying_half(np.array([0.0, 5.0, -1.0, 2.0])), carrying_half(np.ones(10))
    (1, 6)
    """
    sizes = np.sort(np.abs(differences))[::-1].cumsum()
    return int((sizes <= sizes[-1] / 2).sum()) + 1
