"""What no sentence may be built on: a test split that is in train, a wrongly fed model, failed self-checks."""

from __future__ import annotations

import math

from audit.report import Report

GUESSING = 3.0  # standard errors above chance that count as learnt, as in the report's own warning
NEEDS_DATA = "the model was trained on these test samples, so they are not unseen"
NEEDS_INPUT = "the model does no better than guessing on its own train data, so it is probably fed the wrong input"


def broken_blocks(report: Report) -> set[str]:
    """Blocks of the report that no finding may rest on: a self-check of theirs failed, or the gap is void."""
    failed = (check for check in report.checks if check.kind == "check" and check.status == "failed")
    blocks = {block for check in failed for block in check.affects}
    return blocks | ({"gap"} if why_no_gap(report) else set())


def why_no_gap(report: Report) -> str | None:
    """Why the gap says nothing about unseen data; None where it does."""
    if report.hygiene is not None and report.hygiene.leaked.void:
        return NEEDS_DATA
    return NEEDS_INPUT if guesses(report) else None


def guesses(report: Report) -> bool:
    """Whether the model is no better than guessing on its own train data.

    Balanced accuracy, the mean over classes of the share answered right, is 1/C for any guess, however skewed; for
    regression, always answering the mean explains nothing of the variance.
    """
    if report.model.task == "regression":
        return report.gap.train_r2 is not None and report.gap.train_r2 <= 0
    rows = [(row.train_samples, row.train_error) for row in report.gap.per_class]
    present = [(samples, error) for samples, error in rows if samples and error is not None]
    if not present:
        return False
    chance = 1 / max(report.data.classes or 0, 2)
    balanced = sum(1 - error for _, error in present) / len(present)
    variance = sum(chance * (1 - chance) / samples for samples, _ in present)
    return balanced <= chance + GUESSING * math.sqrt(variance) / len(present)


def above_zero(bounds: tuple[float, float] | None) -> bool:
    """Whether an interval lies above zero."""
    return bounds is not None and bounds[0] > 0


def below_zero(bounds: tuple[float, float] | None) -> bool:
    """Whether an interval lies below zero."""
    return bounds is not None and bounds[1] < 0


def gap_is_real(report: Report) -> bool:
    """Whether the model is worse on test than chance explains: wrong answers or, for regression, the loss."""
    gap = report.gap
    return above_zero(gap.loss_gap_ci95 if gap.error_gap is None else gap.error_gap_ci95)


def fits_train(report: Report) -> bool:
    """Whether the model answers at least 99 % of its train samples rightly, as those of the source studies do."""
    return report.gap.train_error is not None and report.gap.train_error <= 0.01


def labels_in_doubt(report: Report) -> bool:
    """Whether the neighbours contradict more train labels than chance explains."""
    return report.hygiene is not None and above_zero(report.hygiene.suspected_mislabels.estimated_rate_ci95)
