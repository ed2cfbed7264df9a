"""Which numbers follow the train loss, and are two reports at one? Asked by `compare`, `history` and the gate alike.

A classifier's curvature shrinks as its train loss does, and its scores, with all their slopes, grow. Two such numbers
say something about two models only at the same train loss. A squared error's curvature does not shrink with the loss.
"""

from __future__ import annotations

from audit.measures.catalogue import CATALOGUE
from audit.measures.report import Report

MATCHED = 0.05  # train losses that differ by at most this share count as equal
INSIDE = ("layers.", "network.")  # what was measured inside the network
BLOCKS = {entry.key for entry in CATALOGUE if entry.follows_train_loss}
WHATEVER_THE_SCALE = {"dimensionality", "mean_rank", "rank_deficient_samples", "degenerate_inputs", "units_active"}
"""Numbers of those blocks that stay the same when all scores are multiplied by one factor."""


def follows_train_loss(path: str) -> bool:
    """Whether the number at this path of a classifier's report moves with its train loss.

    >>> [follows_train_loss(f"network.sensitivity.{name}") for name in ("mls", "dimensionality")]
    [True, False]
    """
    parts = path.split(".")
    return path.startswith(INSIDE) and bool(BLOCKS & set(parts)) and parts[-1] not in WHATEVER_THE_SCALE


def at_one_train_loss(old: Report, new: Report) -> bool:
    """Whether numbers that follow the train loss may stand side by side; for regression they always may."""
    losses = old.gap.train_loss, new.gap.train_loss
    return new.model.task == "regression" or abs(losses[0] - losses[1]) <= MATCHED * max(losses)
