"""Audits two models on the same data and compares them; what follows the train loss, at one common train loss."""

from __future__ import annotations

import math
from pathlib import Path

from audit.compare.comparable import Named
from audit.compare.compare import compare_reports
from audit.compare.network_numbers import AtOneLoss, Measured
from audit.compare.result import Comparison, Matched
from audit.measures.report import Report
from audit.run.overflow import ordinary_sizes
from audit.run.pipeline import NOTHING, Following, run_audit
from audit.run.progress import Progress
from audit.run.sample_terms import sample_terms
from audit.settings import Settings

EQUAL = 1e-6  # relative difference of two train losses below which nothing needs matching


def compare_models(
    old: Path, new: Path, data: Path, settings: Settings, command: str, progress: Progress
) -> Comparison:
    """Both audits, a third one of the model with the smaller train loss, softened, and the comparison.

    All follow the plan of the first. Samples are paired only where all were measured.
    """

    def audited(path: Path, following: Following = NOTHING) -> Measured:
        found = run_audit(path, data, settings, command, progress, following)
        if not found.audit.plan.is_exact("flatness"):
            return Measured(found.report, shown=found.shown)
        with ordinary_sizes():
            return Measured(found.report, sample_terms(found.audit, found.results), found.shown)

    first = audited(old)
    plan = first.report.plan
    second = audited(new, Following(plan=plan, baseline=first.report))
    target = max(first.report.gap.train_loss, second.report.gap.train_loss)
    at_one_loss: AtOneLoss | None = None
    if first.report.model.task == "regression":
        at_one_loss = AtOneLoss(first, second, None)
    elif _apart(first.report, second.report) <= EQUAL * target:
        at_one_loss = AtOneLoss(first, second, Matched(target=target, scaled=None, factor=1.0))
    elif target < _guessing(first.report):
        older = first.report.gap.train_loss < target
        softened = audited(old if older else new, Following(target, plan))
        matched = Matched(target=target, scaled="old" if older else "new", factor=softened.report.model.factor)
        at_one_loss = AtOneLoss(softened, second, matched) if older else AtOneLoss(first, softened, matched)
    sides = Named(str(old), first.report), Named(str(new), second.report)
    return compare_reports(*sides, command, at_one_loss, second.shown)


def _apart(old: Report, new: Report) -> float:
    return abs(old.gap.train_loss - new.gap.train_loss)


def _guessing(report: Report) -> float:
    """The loss of guessing: no softening leads beyond it."""
    return math.log(max(2, report.model.outputs))
