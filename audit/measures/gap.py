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

from audit.outcome import Outcome
from audit.report import ClassGap, GapReport, Interval

Array = NDArray[np.float64]
LEVELS = (2.5, 97.5)
BLOCK = 1 << 22  # numbers drawn at once


def measure_gap(train: Outcome, test: Outcome, classes: Sequence[str] | None, draws: int, seed: int) -> GapReport:
    """The gap of loss and error, overall and by class."""
    rng = np.random.default_rng(seed)
    train_columns, test_columns = _columns(train), _columns(test)
    train_means = bootstrap_means(train_columns, draws, rng)  # [draws, 1 or 2]
    test_means = bootstrap_means(test_columns, draws, rng)
    lower_upper = [_interval(means[:, 0]) for means in (train_means, test_means, test_means - train_means)]
    train_loss, test_loss = float(train.loss.mean()), float(test.loss.mean())
    return GapReport(
        train_loss=train_loss,
        train_loss_ci95=lower_upper[0],
        test_loss=test_loss,
        test_loss_ci95=lower_upper[1],
        loss_gap=test_loss - train_loss,
        loss_gap_ci95=lower_upper[2],
        **_errors(train, test, train_means, test_means),
        **({} if train.wrong is not None else _regression(train, test)),
        bootstrap=draws,
        per_class=[] if classes is None else _by_class(train, test, classes, draws, rng),
        skipped="error and accuracy do not exist for regression" if train.wrong is None else None,
    )


def bootstrap_means(columns: Array, draws: int, rng: np.random.Generator) -> Array:
    """Means of `draws` resamples with replacement; columns [n, k] → [draws, k]."""
    n = len(columns)
    rows = max(1, BLOCK // n)
    blocks = [columns[rng.integers(n, size=(min(rows, draws - start), n))].mean(1) for start in range(0, draws, rows)]
    return np.concatenate(blocks)


def wilson(wrong: float, n: int) -> tuple[float, float]:
    """95 % score interval of a proportion (Wilson 1927): also right at 0 and 1.

    >>> [round(bound, 4) for bound in wilson(0.0, 100)]
    [0.0, 0.037]
    """
    z = 1.959963984540054
    centre = (wrong + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(wrong * (1 - wrong) / n + z * z / (4 * n * n))
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def _columns(outcome: Outcome) -> Array:
    columns = [outcome.loss] if outcome.wrong is None else [outcome.loss, outcome.wrong]
    return np.stack(columns, 1)


def _interval(values: Array) -> tuple[float, float]:
    lower, upper = np.percentile(values, LEVELS)
    return float(lower), float(upper)


def _errors(train: Outcome, test: Outcome, train_means: Array, test_means: Array) -> dict[str, float | Interval]:
    if train.wrong is None or test.wrong is None:
        names = ("train_error", "test_error", "error_gap")
        return {f"{name}{tail}": None for name in names for tail in ("", "_ci95")} | dict.fromkeys(
            ("train_accuracy", "test_accuracy")
        )
    train_error, test_error = float(train.wrong.mean()), float(test.wrong.mean())
    return {
        "train_error": train_error,
        "train_error_ci95": _error_interval(train.wrong, train_means[:, 1]),
        "test_error": test_error,
        "test_error_ci95": _error_interval(test.wrong, test_means[:, 1]),
        "error_gap": test_error - train_error,
        "error_gap_ci95": _interval(test_means[:, 1] - train_means[:, 1]),
        "train_accuracy": 1 - train_error,
        "test_accuracy": 1 - test_error,
    }


def _error_interval(wrong: Array, means: Array) -> Interval:
    """Bootstrap, but Wilson where all answers are alike: resampling equal numbers shows no uncertainty at all."""
    return wilson(float(wrong.mean()), len(wrong)) if wrong.min() == wrong.max() else _interval(means)


def _regression(train: Outcome, test: Outcome) -> dict[str, float | None]:
    return {
        "train_rmse": _rmse(train),
        "test_rmse": _rmse(test),
        "train_r2": r_squared(train),
        "test_r2": r_squared(test),
    }


def _rmse(outcome: Outcome) -> float:
    return float(np.sqrt(np.mean((outcome.scores - outcome.labels) ** 2)))


def r_squared(outcome: Outcome) -> float | None:
    """1 − residual/total sum of squares, averaged over outputs; None where a target never varies."""
    targets = np.asarray(outcome.labels, dtype=np.float64)
    total = ((targets - targets.mean(0)) ** 2).sum(0)
    if (total == 0).any():
        return None
    return float(np.mean(1 - ((outcome.scores - targets) ** 2).sum(0) / total))


def _by_class(
    train: Outcome, test: Outcome, classes: Sequence[str], draws: int, rng: np.random.Generator
) -> list[ClassGap]:
    return [_class_gap(index, name, train, test, draws, rng) for index, name in enumerate(classes)]


def _class_gap(index: int, name: str, train: Outcome, test: Outcome, draws: int, rng: np.random.Generator) -> ClassGap:
    columns = [_columns(outcome)[outcome.labels == index] for outcome in (train, test)]
    counts = [len(rows) for rows in columns]
    means = [rows.mean(0).tolist() if len(rows) else [None, None] for rows in columns]
    both = all(counts)
    draws_by_split = [bootstrap_means(rows[:, :1], draws, rng) for rows in columns] if both else []
    absent = " and ".join(split for split, count in zip(("train", "test"), counts, strict=True) if not count)
    return ClassGap(
        name=name,
        train_samples=counts[0],
        test_samples=counts[1],
        train_loss=means[0][0],
        test_loss=means[1][0],
        train_error=means[0][1],
        test_error=means[1][1],
        loss_gap=means[1][0] - means[0][0] if both else None,
        loss_gap_ci95=_interval(draws_by_split[1][:, 0] - draws_by_split[0][:, 0]) if both else None,
        skipped=None if both else f"no {absent} samples of this class",
    )
