"""How much worse is the model on data it has not seen? The observed gap, with its uncertainty.

Meaning   test minus train, of the mean loss and of the share of wrong answers.
Source    counting; intervals of losses are percentile bootstrap intervals (Efron 1979), train and test drawn
          independently, those of shares of wrong answers Wilson's (1927), and of their difference Newcombe's (1998).
Can tell  whether the difference seen on these samples is more than chance.
Cannot    tell why, nor what happens on data from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import TEST, TRAIN, Bootstrap, cluster_share, interval
from audit.maths.shares import difference_interval, wilson
from audit.measures.contract import Audit, Card, Fold, Measure, Measurement
from audit.measures.gap import DEMAND
from audit.measures.gap.block import ClassGap, Confusion, GapReport, Mistake
from audit.measures.gap.card import CARDS
from audit.measures.gap.positions import class_gaps_by_position
from audit.measures.workload import Demand
from audit.network.record import Products, Record
from audit.network.records import Outcome
from audit.report.fields import Interval

Array = NDArray[np.float64]
ROUNDING = 1e-9  # of the loss: what two sums of equal numbers may differ by, and no difference between the splits


class GapMeasure:
    """Losses and errors of both splits, and their difference."""

    key = "gap"
    question = "How much worse is the model on data it has not seen?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> Fold:
        """Needs no record: the outcomes of both splits are known."""
        return _GapFold(audit)


class _GapFold:
    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    def see(self, record: Record, products: Products) -> None:
        """Nothing of a record."""

    def finish(self) -> Measurement:
        """The gap, overall and by class."""
        audit = self.audit
        outcomes = audit.train_outcome, audit.test_outcome
        return Measurement(network=measure_gap(*outcomes, audit.data.classes, audit.bootstrap))


MEASURE: Measure = GapMeasure()


def measure_gap(train: Outcome, test: Outcome, classes: Sequence[str] | None, bootstrap: Bootstrap) -> GapReport:
    """The gap of loss and error, overall and by class."""
    means = bootstrap.means(train.loss[:, None])[:, 0], bootstrap.means(test.loss[:, None], TEST)[:, 0]
    loss, both = _Difference(train.loss, test.loss, *means), (train, test)
    errors = None if train.wrong is None or test.wrong is None else _errors(train, test, bootstrap)
    return GapReport(
        train_loss=loss.train,
        train_loss_ci95=interval(means[0]),
        test_loss=loss.test,
        test_loss_ci95=interval(means[1]),
        loss_gap=loss.gap,
        loss_gap_ci95=loss.gap_ci95,
        bootstrap=bootstrap.draws,
        per_class=(class_gaps_by_position if train.asked is not None else _class_gaps)(*both, classes or (), bootstrap),
        confusion=None if errors is None or classes is None else count_confusions(test.by_position, classes),
        train_positions=None if train.asked is None else int(train.asked.sum()),
        test_positions=None if test.asked is None else int(test.asked.sum()),
        skipped="error and accuracy do not exist for regression" if errors is None else None,
        **(errors or _fits(train, test, bootstrap)),
    )


def _errors(train: Outcome, test: Outcome, bootstrap: Bootstrap) -> dict[str, Any]:
    """Error and accuracy of a classifier, from the wrong answers of each split."""
    wrong, wrong_test = train.error, test.error
    ends, ends_test = error_interval(train, bootstrap, TRAIN), error_interval(test, bootstrap, TEST)
    return {
        "train_error": wrong,
        "train_error_ci95": ends,
        "test_error": wrong_test,
        "test_error_ci95": ends_test,
        "error_gap": wrong_test - wrong,
        "error_gap_ci95": difference_interval(wrong_test, wrong, ends_test, ends),
        "train_accuracy": 1 - wrong,
        "train_accuracy_ci95": (1 - ends[1], 1 - ends[0]),
        "test_accuracy": 1 - wrong_test,
        "test_accuracy_ci95": (1 - ends_test[1], 1 - ends_test[0]),
    }


def error_interval(outcome: Outcome, bootstrap: Bootstrap, stream: int) -> tuple[float, float]:
    """Wilson's, or where samples have several answers that of a bootstrap over samples."""
    assert outcome.wrong is not None
    if outcome.asked is None:
        return wilson(outcome.error, len(outcome.wrong))
    return cluster_share(outcome.wrong, outcome.asked, bootstrap, stream)


def _share(wrong: Array) -> tuple[float, tuple[float, float]]:
    """Of wrong answers, with its interval."""
    part = float(wrong.mean())
    return part, wilson(part, len(wrong))


def _fits(train: Outcome, test: Outcome, bootstrap: Bootstrap) -> dict[str, Any]:
    """RMSE and R² of a regression, and no errors."""
    found: dict[str, Any] = dict.fromkeys(
        (
            *("train_error", "train_error_ci95", "test_error", "test_error_ci95", "error_gap", "error_gap_ci95"),
            *("train_accuracy", "test_accuracy"),
        )
    )
    fits = {"train": measure_fit(train, bootstrap), "test": measure_fit(test, bootstrap, TEST)}
    found |= _constant_answer(train, test, bootstrap)
    return found | {f"{split}_{name}": value for split, fit in fits.items() for name, value in asdict(fit).items()}


def _constant_answer(train: Outcome, test: Outcome, bootstrap: Bootstrap) -> dict[str, Any]:
    """RMSE on test of always answering the mean target of train [C]."""
    errors = ((test.targets - train.targets.mean(0)) ** 2).mean(1, keepdims=True)  # [n, 1]
    scale = max(float(errors.max()), np.finfo(np.float64).tiny)
    drawn = bootstrap.means(errors / scale, TEST)[:, 0]
    return {
        "test_rmse_guess": float(np.sqrt(errors.mean())),
        "test_rmse_guess_ci95": interval(np.sqrt(scale * drawn)),
    }


class _Difference:
    """Means of one number of samples [n] on both splits, and their difference, with its interval from draws [draws]."""

    def __init__(self, train: Array, test: Array, train_means: Array, test_means: Array) -> None:
        self.train, self.test = float(train.mean()), float(test.mean())
        size = ROUNDING * max(abs(self.train), abs(self.test))
        self.gap = _unless_rounding(self.test - self.train, size)
        ends = interval(test_means - train_means)
        self.gap_ci95 = None if ends is None else (_unless_rounding(ends[0], size), _unless_rounding(ends[1], size))


def _unless_rounding(value: float, size: float) -> float:
    return 0.0 if abs(value) <= size else value


def _class_gaps(train: Outcome, test: Outcome, classes: Sequence[str], bootstrap: Bootstrap) -> list[ClassGap]:
    drawn = (_class_means(split, len(classes), bootstrap, s) for split, s in ((train, TRAIN), (test, TEST)))
    return [
        _class_gap(train, test, *named, means)
        for named, means in zip(enumerate(classes), zip(*drawn, strict=True), strict=True)
    ]


def _class_means(outcome: Outcome, classes: int, bootstrap: Bootstrap, stream: int) -> list[Array | None]:
    """Resampled mean losses [draws] of each class that has samples; classes of the same size share their draws."""
    losses = [outcome.loss[outcome.labels == index] for index in range(classes)]
    sizes = np.array([len(own) for own in losses])
    found: list[Array | None] = [None] * classes
    for size in np.unique(sizes[sizes > 0]):
        same = np.flatnonzero(sizes == size)
        means = bootstrap.means(np.stack([losses[index] for index in same], 1), stream)
        for index, own in zip(same, means.T, strict=True):
            found[index] = own
    return found


def _class_gap(
    train: Outcome, test: Outcome, index: int, name: str, means: tuple[Array | None, Array | None]
) -> ClassGap:
    there, here = train.labels == index, test.labels == index
    train_means, test_means = means
    loss = None
    if train_means is not None and test_means is not None:
        loss = _Difference(train.loss[there], test.loss[here], train_means, test_means)
    absent = " and ".join(split for split, rows in (("train", there), ("test", here)) if not rows.any())
    return ClassGap(
        name=name,
        train_samples=int(there.sum()),
        test_samples=int(here.sum()),
        train_loss=_mean(train.loss, there),
        train_loss_ci95=None if train_means is None else interval(train_means),
        test_loss=_mean(test.loss, here),
        test_loss_ci95=None if test_means is None else interval(test_means),
        train_error=_mean(train.wrong, there),
        train_error_ci95=_class_error_interval(train.wrong, there),
        test_error=_mean(test.wrong, here),
        test_error_ci95=_class_error_interval(test.wrong, here),
        loss_gap=None if loss is None else loss.gap,
        loss_gap_ci95=None if loss is None else loss.gap_ci95,
        skipped=None if loss is not None else f"no {absent} samples of this class",
    )


def _mean(values: Array | None, rows: NDArray[np.bool_]) -> float | None:
    return float(values[rows].mean()) if values is not None and rows.any() else None


def _class_error_interval(wrong: Array | None, rows: NDArray[np.bool_]) -> Interval:
    return _share(wrong[rows])[1] if wrong is not None and rows.any() else None


# Which class is answered for which on the test split: counting.


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


# How well a regression fits one split: RMSE and R², with bootstrap intervals over samples.


@dataclass(frozen=True)
class Fit:
    """Two numbers of a split; `r2` is None where a target never varies."""

    rmse: float
    rmse_ci95: Interval
    r2: float | None
    r2_ci95: Interval


def measure_fit(outcome: Outcome, bootstrap: Bootstrap, stream: int = TRAIN) -> Fit:
    """Both are functions of means over samples: of squared errors, targets and squared targets, output by output."""
    targets, errors = _centred(outcome), (outcome.scores - outcome.targets) ** 2
    scale = max(float(errors.max()), float((targets**2).max()), np.finfo(np.float64).tiny)  # keeps squares in range
    columns = np.concatenate([errors / scale, targets / np.sqrt(scale), targets**2 / scale], 1)
    drawn = np.split(bootstrap.means(columns, stream), 3, axis=1)
    r2 = r_squared(outcome)
    return Fit(
        rmse=float(np.sqrt(errors.mean())),
        rmse_ci95=interval(np.sqrt(scale * drawn[0].mean(1))),
        r2=r2,
        r2_ci95=None if r2 is None else interval(_explained(*drawn)),
    )


def r_squared(outcome: Outcome) -> float | None:
    """1 − residual/total sum of squares, averaged over outputs; None where a target never varies."""
    targets = _centred(outcome)
    total = (targets**2).sum(0)
    if (total == 0).any():
        return None
    return float(np.mean(1 - ((outcome.scores - outcome.targets) ** 2).sum(0) / total))


def _centred(outcome: Outcome) -> Array:
    centred: Array = outcome.targets - outcome.targets.mean(0)
    centred[:, np.ptp(outcome.targets, axis=0) == 0] = 0  # the mean of equal numbers is rounded
    return centred


def _explained(errors: Array, targets: Array, squares: Array) -> Array:
    """R² of each draw from its means [draws, C]; NaN where a draw's targets do not vary."""
    total = squares - targets**2
    varies = (total > 0).all(1)
    explained: Array = np.mean(1 - errors / np.where(total > 0, total, 1.0), 1)
    return np.where(varies, explained, np.nan)
