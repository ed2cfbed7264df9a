"""How well the model does on each split, as the rows that model cards and bills of materials have for it."""

from __future__ import annotations

from dataclasses import dataclass

from audit.measures.gap.block import GapReport
from audit.measures.report import Report
from audit.report.fields import Interval

LOSSES = {"cross_entropy": "mean cross-entropy", "bce": "mean binary cross-entropy", "mse": "mean half squared error"}


@dataclass(frozen=True)
class Metric:
    """One number with its 95 % interval, where it has one."""

    kind: str  # loss, error, accuracy, rmse, r2
    name: str
    slice: str  # train, test, gap, or the class
    value: float
    interval: Interval = None


def metrics(report: Report) -> list[Metric]:
    """Every number of the gap that the task has, test before train, then the classes."""
    gap, loss = report.gap, LOSSES[report.model.loss]
    kinds = {"loss": loss, "error": "error", "accuracy": "accuracy", "rmse": "root mean squared error", "r2": "R²"}
    found = [
        Metric(kind, name, split, getattr(gap, f"{split}_{kind}"), _interval(gap, split, kind))
        for split in ("test", "train")
        for kind, name in kinds.items()
        if getattr(gap, f"{split}_{kind}") is not None
    ]
    gaps = (("loss", gap.loss_gap, gap.loss_gap_ci95), ("error", gap.error_gap, gap.error_gap_ci95))
    found += [
        Metric(kind, f"{kinds[kind]}, test minus train", "gap", value, interval)
        for kind, value, interval in gaps
        if value is not None
    ]
    return found + [
        Metric("error", "error", f"test, class {each.name}", each.test_error)
        for each in gap.per_class
        if each.test_error is not None
    ]


def _interval(gap: GapReport, split: str, kind: str) -> Interval:
    """The accuracy is one minus the error, and so is its interval."""
    if kind == "accuracy":
        error: Interval = getattr(gap, f"{split}_error_ci95")
        return None if error is None else (1 - error[1], 1 - error[0])
    interval: Interval = getattr(gap, f"{split}_{kind}_ci95")
    return interval
