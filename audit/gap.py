"""How much worse is the model on data it has not seen? The observed gap, with its uncertainty.

Meaning   test minus train, of the mean loss and of the share of wrong answers.
Source    counting; the intervals are percentile bootstrap intervals (Efron 1979), train and test drawn independently.
Can tell  whether the difference seen on these samples is more than chance.
Cannot    tell why, nor what happens on data from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audit.blocks.gap import ClassGap, GapReport
from audit.confusion import count_confusions
from audit.fields import Interval
from audit.outcome import Outcome
from audit.resample import interval, resampled_means, wilson

Array = NDArray[np.float64]
TEST = 1 << 20  # keeps the draws of the two splits apart
FEW = 10  # wrong, or right, answers below which the bootstrap of a share is blind


def measure_gap(train: Outcome, test: Outcome, classes: Sequence[str] | None, draws: int, seed: int) -> GapReport:
    """The gap of loss and error, overall and by class."""
    loss = _Difference(train.loss, test.loss, draws, seed)
    wrong = None if train.wrong is None or test.wrong is None else _Difference(train.wrong, test.wrong, draws, seed)
    regression = wrong is None
    return GapReport(
        train_loss=loss.train,
        train_loss_ci95=loss.train_ci95,
        test_loss=loss.test,
        test_loss_ci95=loss.test_ci95,
        loss_gap=loss.gap,
        loss_gap_ci95=loss.gap_ci95,
        train_error=None if wrong is None else wrong.train,
        train_error_ci95=None
        if train.wrong is None or wrong is None
        else _share_interval(train.wrong, wrong.train_ci95),
        test_error=None if wrong is None else wrong.test,
        test_error_ci95=None if test.wrong is None or wrong is None else _share_interval(test.wrong, wrong.test_ci95),
        error_gap=None if wrong is None else wrong.gap,
        error_gap_ci95=None if wrong is None else _error_gap_interval(train, test, wrong),
        train_accuracy=None if wrong is None else 1 - wrong.train,
        test_accuracy=None if wrong is None else 1 - wrong.test,
        train_rmse=_rmse(train) if regression else None,
        test_rmse=_rmse(test) if regression else None,
        train_r2=r_squared(train) if regression else None,
        test_r2=r_squared(test) if regression else None,
        bootstrap=draws,
        per_class=[_class_gap(train, test, *named, draws, seed) for named in enumerate(classes or ())],
        confusion=None if regression or classes is None else count_confusions(test, classes),
        skipped="error and accuracy do not exist for regression" if regression else None,
    )


class _Difference:
    """Means of one number on both splits, and their difference, with bootstrap intervals."""

    def __init__(self, train: Array, test: Array, draws: int, seed: int) -> None:
        self.train, self.test = float(train.mean()), float(test.mean())
        self.gap = self.test - self.train
        train_means = resampled_means(train[:, None], draws, seed)[:, 0]
        test_means = resampled_means(test[:, None], draws, seed + TEST)[:, 0]
        self.train_ci95, self.test_ci95 = interval(train_means), interval(test_means)
        self.gap_ci95 = interval(test_means - train_means)


def _share_interval(wrong: Array, bootstrap: Interval) -> Interval:
    """Bootstrap, but Wilson where nearly all answers are alike: resampling equal numbers shows no uncertainty."""
    return wilson(float(wrong.mean()), len(wrong)) if _one_sided(wrong) else bootstrap


def _one_sided(wrong: Array) -> bool:
    """Whether too few answers are wrong, or right, for a bootstrap to see how uncertain their number is."""
    return bool(min(wrong.sum(), len(wrong) - wrong.sum()) < FEW)


def _error_gap_interval(train: Outcome, test: Outcome, wrong: _Difference) -> Interval:
    """Bootstrap; where a split's answers are nearly all alike, Newcombe's interval from both score intervals (1998)."""
    assert train.wrong is not None and test.wrong is not None
    if not _one_sided(train.wrong) and not _one_sided(test.wrong):
        return wrong.gap_ci95
    (low, high), (low_test, high_test) = (wilson(float(part.mean()), len(part)) for part in (train.wrong, test.wrong))
    below = np.hypot(wrong.test - low_test, high - wrong.train)
    above = np.hypot(high_test - wrong.test, wrong.train - low)
    return float(wrong.gap - below), float(wrong.gap + above)


def _rmse(outcome: Outcome) -> float:
    return float(np.sqrt(np.mean((outcome.scores - outcome.targets) ** 2)))


def r_squared(outcome: Outcome) -> float | None:
    """1 − residual/total sum of squares, averaged over outputs; None where a target never varies."""
    targets = outcome.targets
    total = ((targets - targets.mean(0)) ** 2).sum(0)
    if (total == 0).any():
        return None
    return float(np.mean(1 - ((outcome.scores - targets) ** 2).sum(0) / total))


def _class_gap(train: Outcome, test: Outcome, index: int, name: str, draws: int, seed: int) -> ClassGap:
    there, here = train.labels == index, test.labels == index
    both = bool(there.any() and here.any())
    loss = _Difference(train.loss[there], test.loss[here], draws, seed) if both else None
    absent = " and ".join(split for split, rows in (("train", there), ("test", here)) if not rows.any())
    return ClassGap(
        name=name,
        train_samples=int(there.sum()),
        test_samples=int(here.sum()),
        train_loss=_mean(train.loss, there),
        test_loss=_mean(test.loss, here),
        train_error=_mean(train.wrong, there),
        test_error=_mean(test.wrong, here),
        loss_gap=None if loss is None else loss.gap,
        loss_gap_ci95=None if loss is None else loss.gap_ci95,
        skipped=None if both else f"no {absent} samples of this class",
    )


def _mean(values: Array | None, rows: NDArray[np.bool_]) -> float | None:
    return float(values[rows].mean()) if values is not None and rows.any() else None
