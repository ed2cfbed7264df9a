"""Which samples two reports share, and what they observed differently: loss, error and their gaps, new minus old.

With a weight other than 1 it is the difference new − weight · old: a limit of "10 % worse" is a question about the mean
of new − 1.1 · old, whose interval also knows that the old mean is no more exact than the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.maths.intervals import LEVEL, mean_interval, normal_quantile, share_interval
from audit.maths.shares import difference_interval
from audit.measures import Report
from audit.report.blocks import SplitOutcomes
from audit.report.fields import Interval, says

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
ENOUGH = 0.5  # two reports are compared where at least this share of their samples of a split is common
READ_AS = ("label", "classes", "task", "layout")  # settings that change what a file's samples and labels are
SPLITS, KINDS = ("test", "train"), ("error", "loss")
GAP_NUMBERS = ("test_error", "test_loss", "train_error", "train_loss", "error_gap", "loss_gap")
NO_ERROR = "regression has no wrong answers"


@dataclass(frozen=True)
class Answers:
    """What one model did on n samples."""

    loss: Array  # [n]
    wrong: Array | None  # [n] wrong answers: 0 or 1, or more of many positions; None for regression
    asked: Array | None = None  # [n] labelled positions of each sample; None: one answer each

    def values(self, kind: str) -> Array | None:
        """[n] of "loss" or "error", whose mean is that of the split."""
        if kind == "loss" or self.wrong is None or self.asked is None:
            return self.loss if kind == "loss" else self.wrong
        return np.asarray(self.wrong / self.asked.mean())


@dataclass(frozen=True)
class PairedAnswers:
    """Both models on the same samples of one split."""

    old: Answers
    new: Answers
    kept: int  # samples whose outcomes a report kept, in the one that kept more
    in_use: int  # samples that a report used, in the one that used more
    positions: Rows  # in the split of the new report, as stored

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


def pair(old: Report, new: Report, split: str) -> PairedAnswers | None:
    """The common samples of a split; None where there are none or a report kept no outcomes."""
    mine, theirs = split_outcomes(old, split), split_outcomes(new, split)
    if mine is None or theirs is None:
        return None
    rows = _common_rows(mine, theirs, same_folder(old, new))
    if rows is None or not len(rows[0]):
        return None
    kept, in_use = max(len(mine.loss), len(theirs.loss)), max(mine.samples, theirs.samples)
    positions = np.array(theirs.positions, dtype=np.int64)[rows[1]]
    return PairedAnswers(_answers(mine, rows[0]), _answers(theirs, rows[1]), kept, in_use, positions)


def _answers(side: SplitOutcomes, rows: Rows) -> Answers:
    wrong, asked = (
        None if part is None else np.array(part, dtype=np.float64)[rows] for part in (side.wrong, side.answers)
    )
    return Answers(np.array(side.loss, dtype=np.float64)[rows], wrong, asked)


def _common_rows(old: SplitOutcomes, new: SplitOutcomes, one_folder: bool) -> tuple[Rows, Rows] | None:
    """Rows of either side that are the same samples, in the same order."""
    same = bool(old.sha256) and old.sha256 == new.sha256
    if one_folder or (same and old.positions == new.positions):
        _, mine, theirs = np.intersect1d(old.positions, new.positions, assume_unique=True, return_indices=True)
        return mine, theirs
    if same and len(old.positions) == len(new.positions) == old.samples:
        return np.arange(old.samples), np.arange(old.samples)
    return None


# The differences themselves, each with its interval.


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of both reports."""

    key: str = says("its path in report.json")
    old: float | None = None
    new: float | None = None
    difference: float | None = says("new minus old", default=None)
    ci95: Interval = says("95 % interval of the difference", default=None)
    samples: int | None = says("samples behind it that both reports have", default=None)
    in_use: int | None = says("samples of the report that used more of them", default=None)
    identical: bool = says("whether both models do the very same on every sample", default=False)
    paired: bool = says("whether the interval pairs both models on each sample, or treats them as independent")
    skipped: str | None = says("why it was not compared", default=None)


@dataclass(frozen=True)
class Asked:
    """Which difference, and how sure."""

    level: float = LEVEL  # share of intervals that may miss the truth
    weight: float = 1.0  # of the old value


USUAL = Asked()


def gap_differences(old: Report, new: Report, asked: Asked = USUAL) -> dict[str, Difference]:
    """By name of the number in `report.gap`; one that cannot be compared says why in `skipped`."""
    found = {f"{split}_{kind}": split_difference(old, new, split, kind, asked) for split in SPLITS for kind in KINDS}
    for kind in KINDS:
        found[f"{kind}_gap"] = _gap_difference(kind, found[f"test_{kind}"], found[f"train_{kind}"])
    return {name: found[name] for name in GAP_NUMBERS}


def split_difference(old: Report, new: Report, split: str, kind: str, asked: Asked = USUAL) -> Difference:
    """The "error" or the "loss" of one split alone."""
    pairs, name = pair(old, new, split), f"{split}_{kind}"
    if pairs is not None and pairs.enough:
        return _paired(split, kind, pairs, asked)
    if pairs is None and same_samples(old, new, split):
        return _unpaired(name, old, new, asked)
    if pairs is None:
        return _skipped(name, f"the {split} samples of the two reports differ")
    return _skipped(name, f"the two reports share {len(pairs):,} of {pairs.kept:,} {split} samples, fewer than half")


def _paired(split: str, kind: str, pairs: PairedAnswers, asked: Asked) -> Difference:
    """Means over the common samples, and the interval of their difference."""
    name = f"{split}_{kind}"
    old, new = pairs.old.values(kind), pairs.new.values(kind)
    if old is None or new is None:
        return _skipped(name, NO_ERROR)
    change, positions = new - asked.weight * old, pairs.new.asked if kind == "error" else None
    if positions is not None:
        ci95: Interval = mean_interval(_of_ratio(change, positions), asked.level)
    elif kind == "error" and asked.weight == 1:
        ci95 = share_interval(old, new, asked.level)
    else:
        ci95 = mean_interval(change, asked.level)
    made = _difference(name, asked.weight * float(old.mean()), float(new.mean()), ci95, len(pairs), paired=True)
    return replace(made, in_use=pairs.in_use, identical=pairs.identical(kind))


def _of_ratio(values: Array, asked: Array) -> Array:
    """What each sample adds to Σ values / Σ asked, linearised: its mean is that of the values, whose unit is 1/mean."""
    mean = values.mean()
    return np.asarray(values - mean * asked / asked.mean() + mean)


def _unpaired(name: str, old: Report, new: Report, asked: Asked) -> Difference:
    """From both reports' own intervals, as if the samples were different ones: too wide, but right."""
    before, after = getattr(old.gap, name), getattr(new.gap, name)
    if before is None or after is None:
        return _skipped(name, NO_ERROR)
    wider = normal_quantile(asked.level / 2) / normal_quantile(LEVEL / 2)
    of_old = stretched(before, getattr(old.gap, f"{name}_ci95"), wider, asked.weight)
    of_new = stretched(after, getattr(new.gap, f"{name}_ci95"), wider)
    ci95 = difference_interval(after, asked.weight * before, of_new, of_old)
    samples = (new.data.test if name.startswith("test") else new.data.train).samples
    made = _difference(name, asked.weight * before, after, ci95, samples, paired=False)
    return replace(made, identical=before == after and old.model.sha256 == new.model.sha256)


def stretched(value: float, ci95: Interval, wider: float, weight: float = 1.0) -> Interval:
    """The interval of weight · value, `wider` times as wide."""
    if ci95 is None:
        return None
    ends = weight * (value - wider * (value - ci95[0])), weight * (value + wider * (ci95[1] - value))
    return min(ends), max(ends)


def _gap_difference(kind: str, test: Difference, train: Difference) -> Difference:
    """Test minus train: the two splits are independent samples."""
    name = f"{kind}_gap"
    for part in (test, train):
        if part.skipped is not None or part.difference is None:
            return _skipped(name, part.skipped or "one of its parts is missing")
    assert test.old is not None and test.new is not None and train.old is not None and train.new is not None
    assert test.difference is not None and train.difference is not None
    ci95 = difference_interval(test.difference, train.difference, test.ci95, train.ci95)
    made = _difference(name, test.old - train.old, test.new - train.new, ci95, None, test.paired and train.paired)
    same = test.identical and train.identical
    return replace(made, difference=test.difference - train.difference, identical=same)


def _difference(name: str, old: float, new: float, ci95: Interval, samples: int | None, paired: bool) -> Difference:
    return Difference(
        key=f"gap.{name}", old=old, new=new, difference=new - old, ci95=ci95, samples=samples, paired=paired
    )


def _skipped(name: str, why: str) -> Difference:
    return Difference(key=f"gap.{name}", paired=False, skipped=why)
