"""Which outcomes a report keeps: all of them, or for very large splits a draw that is the same in every report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.blocks.outcomes import Outcomes, SplitOutcomes
from audit.data.base import Data, Split
from audit.outcome import Outcome

MOST = 20_000  # samples kept of a split: about half a megabyte


def keep_outcomes(data: Data, train: Outcome, test: Outcome) -> Outcomes:
    """Losses and mistakes of both splits by position."""
    return Outcomes(train=_kept(data.train, train), test=_kept(data.test, test))


def _kept(split: Split, outcome: Outcome) -> SplitOutcomes:
    positions = split.index if len(split.index) else np.arange(len(split))
    rows = chosen(positions, MOST)
    return SplitOutcomes(
        sha256=split.sha256,
        samples=len(split),
        positions=positions[rows].tolist(),
        loss=outcome.loss[rows].tolist(),
        wrong=None if outcome.wrong is None else outcome.wrong[rows].astype(int).tolist(),
    )


def chosen(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows to keep, ascending by position. A position's rank depends on itself alone, so two audits keep the same."""
    order = np.argsort(positions, kind="stable")
    if len(order) <= most:
        return order
    draws = np.random.PCG64(0).random_raw(int(positions.max()) + 1)[positions[order]]
    return np.asarray(order[np.sort(np.argsort(draws, kind="stable")[:most])])
