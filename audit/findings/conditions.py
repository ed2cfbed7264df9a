"""What no sentence may be built on: a test split that is in train, a wrongly fed model, failed self-checks."""

from __future__ import annotations

from audit.maths import shares
from audit.maths.shares import balanced_accuracy, clearly_guessing, no_better_than_guessing
from audit.measures.gap.block import FITTED
from audit.measures.report import Report

FOR_THEORY = ("gradient-small", "interpolation")  # checks of what the source studies assume of every model
NEEDS_DATA = "these test samples are also in the train data, so they are not unseen"
NEEDS_FEEDING = "the samples or the order of the classes are probably not as in training"
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
    if fed_otherwise(report):
        return NEEDS_FEEDING
    return NEEDS_INPUT if guesses(report) else None


def fed_otherwise(report: Report) -> bool:
    """Whether another preprocessing or another order of the classes suits the model much better."""
    doctor = report.doctor
    return doctor is not None and (doctor.preferred is not None or doctor.misordered is not None)


def guesses(report: Report) -> bool:
    """Whether the model is no better than guessing on its own train data.

    Balanced accuracy, the mean over classes of the share answered right, is 1/C for any guess, however skewed; for
    regression, always answering the mean explains nothing of the variance.
    """
    if report.model.task == "regression":
        return report.gap.train_r2 is not None and report.gap.train_r2 <= 0
    present = _trained(report)
    return bool(present) and no_better_than_guessing(present, chance(report))


def balanced_train_accuracy(report: Report) -> float | None:
    """The mean over classes of the share of train samples answered right; None without classes."""
    present = _trained(report)
    return balanced_accuracy(present) if present else None


def guesses_on_test(report: Report) -> bool:
    """Whether a classifier is no better than guessing on test, with enough samples there to see a better one."""
    rows = [(min(row.test_samples, report.data.test.samples), row.test_error) for row in report.gap.per_class]
    present = [(samples, error) for samples, error in rows if samples and error is not None]
    return bool(present) and clearly_guessing(present, chance(report))


def chance(report: Report) -> float:
    """The share of right answers, balanced over classes, of any guess."""
    return shares.chance(report.data.classes)


def _trained(report: Report) -> list[tuple[int, float]]:
    """Samples and error of each class in train; of positions, as if a sample were one piece of evidence at most."""
    rows = [(min(row.train_samples, report.data.train.samples), row.train_error) for row in report.gap.per_class]
    return [(samples, error) for samples, error in rows if samples and error is not None]


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
    """Whether the model answers nearly all of its train samples rightly, as those of the source studies do."""
    return report.gap.train_error is not None and report.gap.train_error <= FITTED


def labels_in_doubt(report: Report) -> bool:
    """Whether the neighbours contradict more train labels than chance explains."""
    return report.hygiene is not None and above_zero(report.hygiene.suspected_mislabels.estimated_rate_ci95)


def unfit_for_theory(report: Report) -> list[int]:
    """Places of the failed checks whether the model fits its train data and is at rest, as the source studies ask."""
    return [
        place
        for place, check in enumerate(report.checks)
        if check.id in FOR_THEORY and check.status == "failed" and None not in (check.value, check.tolerance)
    ]
