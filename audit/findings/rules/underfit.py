"""Does the model already fail on what it was trained on?"""

from __future__ import annotations

import math

from audit.findings.beside import came_of, tried
from audit.findings.conditions import chance, labels_in_doubt
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import capital, explained, unit, within
from audit.measures.gap.block import FITTED
from audit.measures.report import Report
from audit.report.numbers import number, percent, share

MOSTLY = 0.5  # wrong on more of the train samples than right, or more of their variance unexplained than explained


def find(report: Report) -> Observation | None:
    """Speaks where more goes wrong on train than is added on test."""
    return _regression(report) if report.model.task == "regression" else _classification(report)


def _classification(report: Report) -> Observation | None:
    gap = report.gap
    if gap.train_error is None or gap.error_gap_ci95 is None or gap.train_error <= FITTED:
        return None
    if gap.train_error <= gap.error_gap_ci95[1]:
        return None
    paid = _too_sure(report, gap.train_error)
    return Observation(
        level="watch" if gap.train_error > MOSTLY or _helps(report) else "note",
        title="Most of what goes wrong on test already goes wrong on train: consistent with an underfit",
        explanation=(
            f"The model answers {percent(gap.train_error)} of its train {unit(report)}s wrongly"
            f"{within(gap.train_error_ci95, 'percent')}, more than the gap adds to it on test. A small gap is no "
            f"praise here: a model that learns little has little to lose.{paid}{_longer(report)}"
        ),
        advice=(
            "Check first that the input is scaled as in training (--scale, --mean, --std)."
            if paid
            else "Settle the doubtful train labels first: a model that fits them better learns them by heart."
            if labels_in_doubt(report)
            else "Try a longer training, a larger model or less regularisation before you collect more data. Where the "
            "input does not hold the answer, this may also be as good as it gets."
        ),
        evidence=("gap.train_error", "gap.train_error_ci95", "gap.error_gap", "gap.error_gap_ci95", "gap.train_loss"),
    )


def _helps(report: Report) -> bool:
    remedy = tried(report, "longer")
    return remedy is not None and remedy.verdict == "helps"


def _longer(report: Report) -> str:
    """What a longer training did to networks like it."""
    remedy = tried(report, "longer")
    if remedy is None:
        return " Networks trained anew for longer would say whether it could do better (`gen-audit twins`)."
    return f" {capital(came_of(report, remedy))}."


def _too_sure(report: Report, wrong: float) -> str:
    """A hint where the train loss is above what the same number of mistakes costs a model that knows how many it makes.

    Such a model gives its answer the probability 1 − wrong, and the others what is left, in equal parts.
    """
    bounds = report.gap.train_loss_ci95
    others = round(1 / chance(report)) - 1
    known = -sum(part * math.log(part / ways) for part, ways in ((1 - wrong, 1), (wrong, others)) if part > 0)
    weighed_alike = report.gap.train_positions is None  # not by position here and by sample there
    if bounds is None or bounds[0] <= known or not weighed_alike:
        return ""
    return (
        f" Its train loss of {number(report.gap.train_loss)} is above the {number(known)} of a model that is wrong as "
        "often and knows how often: too sure on its own train data, which suggests an input scaled otherwise than in "
        "training."
    )


def _regression(report: Report) -> Observation | None:
    train, test = report.gap.train_r2, report.gap.test_r2
    if train is None or test is None or train >= 1 - FITTED or 1 - train <= train - test:
        return None
    return Observation(
        level="watch" if train < MOSTLY else "note",
        title="Most of what goes wrong on test already goes wrong on train: consistent with an underfit",
        explanation=(
            f"The model explains {explained(train)} of the variance of its train targets and {explained(test)} on "
            "test: what it leaves unexplained on train is more than what test adds to it. Noise in the targets looks "
            "the same, and no model can explain that."
        ),
        advice="Try a larger model, a longer training or better features, and compare with how noisy the targets are.",
        evidence=("gap.train_r2", "gap.test_r2"),
    )


RULE = FindingRule(
    id="underfit",
    title="Underfit",
    meaning="Whether the model's mistakes are mostly made on the train samples already.",
    conditions=(
        f"note: train error e > {number(FITTED)} and above the upper end of the error gap's 95 % interval, with a hint "
        "at the input's scale where the train loss is above h(e) + e ln(C−1) beyond chance; regression: "
        f"1 − R²_train > R²_train − R²_test and R²_train < {number(1 - FITTED)}; watch: where e > {number(MOSTLY)}, "
        f"R²_train < {number(MOSTLY)}, or twins that were trained for longer do better on test"
    ),
    source="The split of the test error into train error and gap.",
    origin=(
        f"One half of the test error, a natural mark; {share(FITTED)} is what the source studies call fitted "
        "(interpolation)."
    ),
    cannot_tell="Whether a better fit is possible: with noisy labels or targets it is not.",
    find=find,
    rests_on=("gap",),
)
