"""Audits two models on the same data and compares them; what follows the train loss, at one common train loss."""

from __future__ import annotations

import math
from pathlib import Path

from audit.compare.compare import compare_reports
from audit.compare.ground import Named
from audit.compare.result import Comparison, Matched
from audit.pipeline import run_audit
from audit.progress import Progress
from audit.report import Report
from audit.settings import Settings

EQUAL = 1e-6  # relative difference of two train losses below which nothing needs matching


def compare_models(
    old: Path, new: Path, data: Path, settings: Settings, command: str, progress: Progress
) -> Comparison:
    """Both audits, a third one of the model with the smaller train loss, softened, and the comparison."""

    def audited(path: Path, train_loss: float | None = None) -> Report:
        return run_audit(path, data, settings, command, progress, train_loss)

    first, second = audited(old), audited(new)
    losses = first.gap.train_loss, second.gap.train_loss
    target = max(losses)
    at_one_loss: tuple[Report, Report, Matched] | None = None
    if abs(losses[0] - losses[1]) <= EQUAL * target and first.model.task != "regression":
        at_one_loss = first, second, Matched(target=target, scaled=None, factor=1.0)
    elif first.model.task != "regression" and target < math.log(max(2, first.model.outputs)):
        if losses[0] < losses[1]:
            softened = audited(old, target)
            at_one_loss = softened, second, Matched(target=target, scaled="old", factor=softened.model.factor)
        else:
            softened = audited(new, target)
            at_one_loss = first, softened, Matched(target=target, scaled="new", factor=softened.model.factor)
    return compare_reports(Named(str(old), first), Named(str(new), second), command, at_one_loss)
