"""What the report says about the observed gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from audit.report import ModelReport
from audit.report.blocks import LARGEST_LOSS
from audit.report.fields import Interval, says

FITTED = 0.01  # share of wrong answers on train up to which the source studies call a model fitted


@dataclass(frozen=True, kw_only=True)
class ClassGap:
    """One class in the gap."""

    name: str
    train_samples: int = says("samples of this class, or labelled positions where every position has a label")
    test_samples: int
    train_error: float | None
    test_error: float | None
    train_loss: float | None
    test_loss: float | None
    loss_gap: float | None
    loss_gap_ci95: Interval
    train_error_ci95: Interval = says("a Wilson interval", default=None)
    test_error_ci95: Interval = says("a Wilson interval", default=None)
    train_loss_ci95: Interval = None
    test_loss_ci95: Interval = None
    skipped: str | None = says("why this class has no gap", default=None)


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """How often one class is answered for another."""

    label: str = says("the right class")
    answer: str = says("the class that is answered")
    count: int = says("test samples, or positions")


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Which class is answered for which on the test split."""

    counts: list[list[int]] | None = says(
        "test samples, or positions; row: right class, column: answer, as in data.class_names"
    )
    most: list[Mistake] = says("the most frequent mistakes, most frequent first")
    skipped: str | None = says("why counts is null", default=None)


@dataclass(frozen=True, kw_only=True)
class GapReport:
    """The observed generalization gap: test minus train.

    Intervals are 95 %: of losses by a bootstrap over samples, of shares of wrong answers Wilson's and Newcombe's. Where
    samples have a label at every position, errors are shares of positions, and all intervals are by a bootstrap over
    samples.
    """

    train_loss: float
    train_loss_ci95: Interval
    test_loss: float
    test_loss_ci95: Interval
    loss_gap: float
    loss_gap_ci95: Interval
    train_error: float | None = says("share of wrong answers; null for regression")
    train_error_ci95: Interval = says("Wilson's interval of a share")
    test_error: float | None
    test_error_ci95: Interval
    error_gap: float | None
    error_gap_ci95: Interval
    train_accuracy: float | None
    test_accuracy: float | None
    train_accuracy_ci95: Interval = says("one minus train_error_ci95", default=None)
    test_accuracy_ci95: Interval = says("one minus test_error_ci95", default=None)
    train_rmse: float | None = says("root mean squared error over samples and outputs; regression only", default=None)
    test_rmse: float | None = None
    train_rmse_ci95: Interval = None
    test_rmse_ci95: Interval = None
    test_rmse_guess: float | None = says("the same of always answering the mean target of train", default=None)
    test_rmse_guess_ci95: Interval = None
    train_r2: float | None = says("share of variance explained, averaged over outputs; regression only", default=None)
    test_r2: float | None = None
    train_r2_ci95: Interval = None
    test_r2_ci95: Interval = None
    bootstrap: int = says("draws behind the intervals of losses", default=0)
    train_positions: int | None = says("labelled positions; null where every sample has one answer", default=None)
    test_positions: int | None = None
    per_class: list[ClassGap] = field(default_factory=list)
    confusion: Confusion | None = says("null for regression", default=None)
    skipped: str | None = says("why some numbers above are null", default=None)


def gap_faults(gap: GapReport, model: ModelReport) -> Iterator[str]:
    """Every task has a loss; one that chooses among classes has errors, too."""
    for split in ("train", "test"):
        loss, error = (getattr(gap, f"{split}_{kind}") for kind in ("loss", "error"))
        if abs(loss) > LARGEST_LOSS or (model.loss == "mse" and loss < 0):
            yield f"gap.{split}_loss cannot be {loss:g}"
        if error is None and model.task != "regression":
            yield f"gap.{split}_error is null, though the task is {model.task}"
