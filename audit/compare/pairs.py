"""Which samples two reports have in common, and what each model did on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.measures.report import Report
from audit.report.blocks import SplitOutcomes

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
ENOUGH = 0.5  # two reports are compared where at least this share of their samples of a split is common
READ_AS = ("label", "classes", "task", "layout")  # settings that change what a file's samples and labels are


@dataclass(frozen=True)
class Answers:
    """What one model did on n samples."""

    loss: Array  # [n]
    wrong: Array | None  # [n] 0 or 1; None for regression

    def values(self, kind: str) -> Array | None:
        """[n] of "loss" or "error"."""
        return self.loss if kind == "loss" else self.wrong


@dataclass(frozen=True)
class Pairs:
    """Both models on the same samples of one split."""

    old: Answers
    new: Answers
    kept: int  # samples whose outcomes a report kept, in the one that kept more
    in_use: int  # samples that a report used, in the one that used more

    def __len__(self) -> int:
        return len(self.old.loss)

    @property
    def whole(self) -> bool:
        """Whether both reports rest on these samples and no others."""
        return len(self) == self.in_use

    @property
    def enough(self) -> bool:
        """Whether they can speak for both reports; a handful of common samples is another, smaller test set."""
        return len(self) > 1 and len(self) >= ENOUGH * self.kept

    def identical(self, kind: str) -> bool:
        """Whether both models do the very same on every sample of the split."""
        old, new = self.old.values(kind), self.new.values(kind)
        return self.whole and old is not None and new is not None and bool((old == new).all())


def same_folder(old: Report, new: Report) -> bool:
    """Whether both read the same files in the same way, so that a position means the same sample."""
    alike = all(old.settings.get(name) == new.settings.get(name) for name in READ_AS)
    return bool(old.data.sha256) and old.data.sha256 == new.data.sha256 and alike


def same_samples(old: Report, new: Report, split: str) -> bool:
    """Whether both used the very same samples of a split, wherever these were stored."""
    mine, theirs = split_outcomes(old, split), split_outcomes(new, split)
    if mine is not None and theirs is not None and mine.sha256 and theirs.sha256:
        return mine.sha256 == theirs.sha256
    names = ("seed", "samples", "test_samples", "test_fraction")
    return same_folder(old, new) and all(old.settings.get(name) == new.settings.get(name) for name in names)


def split_outcomes(report: Report, split: str) -> SplitOutcomes | None:
    """The outcomes of one split, where the report kept them."""
    if report.outcomes is None:
        return None
    return report.outcomes.train if split == "train" else report.outcomes.test


def pair(old: Report, new: Report, split: str) -> Pairs | None:
    """The common samples of a split; None where there are none or a report kept no outcomes."""
    mine, theirs = split_outcomes(old, split), split_outcomes(new, split)
    if mine is None or theirs is None:
        return None
    rows = _common_rows(mine, theirs, same_folder(old, new))
    if rows is None or not len(rows[0]):
        return None
    kept, in_use = max(len(mine.loss), len(theirs.loss)), max(mine.samples, theirs.samples)
    return Pairs(_answers(mine, rows[0]), _answers(theirs, rows[1]), kept, in_use)


def _answers(side: SplitOutcomes, rows: Rows) -> Answers:
    wrong = None if side.wrong is None else np.array(side.wrong, dtype=np.float64)[rows]
    return Answers(np.array(side.loss, dtype=np.float64)[rows], wrong)


def _common_rows(old: SplitOutcomes, new: SplitOutcomes, one_folder: bool) -> tuple[Rows, Rows] | None:
    """Rows of either side that are the same samples, in the same order."""
    same = bool(old.sha256) and old.sha256 == new.sha256
    if one_folder or (same and old.positions == new.positions):
        _, mine, theirs = np.intersect1d(old.positions, new.positions, assume_unique=True, return_indices=True)
        return mine, theirs
    if same and len(old.positions) == len(new.positions) == old.samples:
        return np.arange(old.samples), np.arange(old.samples)
    return None
