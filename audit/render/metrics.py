"""How well the model does on each split, as the rows that model cards and bills of materials have for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LOSSES = {"cross_entropy": "mean cross-entropy", "bce": "mean binary cross-entropy", "mse": "mean half squared error"}


@dataclass(frozen=True)
class Metric:
    """One number with its 95 % interval, where it has one."""

    kind: str  # loss, error, accuracy, rmse, r2
    name: str
    slice: str  # train, test, gap, or the class
    value: float
    interval: tuple[float, float] | None = None


def metrics(report: dict[str, Any]) -> list[Metric]:
    """Every number of the gap that the task has, test before train, then the classes."""
    gap, loss = report["gap"], LOSSES[report["model"]["loss"]]
    kinds = {"loss": loss, "error": "error", "accuracy": "accuracy", "rmse": "root mean squared error", "r2": "R²"}
    found = [
        Metric(kind, name, split, gap[f"{split}_{kind}"], _interval(gap, split, kind))
        for split in ("test", "train")
        for kind, name in kinds.items()
        if gap[f"{split}_{kind}"] is not None
    ]
    found += [
        Metric(kind, f"{kinds[kind]}, test minus train", "gap", gap[f"{kind}_gap"], _pair(gap[f"{kind}_gap_ci95"]))
        for kind in ("loss", "error")
        if gap[f"{kind}_gap"] is not None
    ]
    return found + [
        Metric("error", "error", f"test, class {each['name']}", each["test_error"])
        for each in gap["per_class"]
        if each["test_error"] is not None
    ]


def _interval(gap: dict[str, Any], split: str, kind: str) -> tuple[float, float] | None:
    """The accuracy is one minus the error, and so is its interval."""
    if kind == "accuracy":
        error = _pair(gap[f"{split}_error_ci95"])
        return None if error is None else (1 - error[1], 1 - error[0])
    return _pair(gap.get(f"{split}_{kind}_ci95"))


def _pair(bounds: list[float] | None) -> tuple[float, float] | None:
    return None if bounds is None else (bounds[0], bounds[1])
