"""Does the model do better on test than on train, beyond chance?"""

from __future__ import annotations

from audit.findings.conditions import below_zero, labels_in_doubt
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import within
from audit.measures.report import Report
from audit.report.numbers import number, percent, points


def find(report: Report) -> Observation | None:
    """Speaks where the whole interval lies below zero."""
    gap = report.gap
    answers = gap.error_gap is not None
    bounds = gap.error_gap_ci95 if answers else gap.loss_gap_ci95
    if not below_zero(bounds):
        return None
    size = (
        f"It is wrong on {percent(gap.test_error)} of test and on {percent(gap.train_error)} of train, a difference of "
        f"{points(gap.error_gap)}{within(bounds, 'points')}."
        if answers
        else f"Its mean loss is {number(gap.test_loss)} on test and {number(gap.train_loss)} on train, a difference of "
        f"{number(gap.loss_gap)}{within(bounds)}."
    )
    doubt = " Train labels are in doubt here, which suggests the last." if labels_in_doubt(report) else ""
    return Observation(
        level="watch",
        title="The model does better on test than on train, beyond chance",
        explanation=(
            f"{size} A model is rarely better on samples that it has not seen. This suggests that test samples are "
            "easier, that they are copies or were used in training, or that train holds samples that were not trained "
            f"on or have wrong labels.{doubt} A gap of this kind is no praise."
        ),
        advice="Look at how the two splits were drawn, and at their classes and sources, before you quote its error.",
        evidence=(
            ("gap.train_error", "gap.test_error", "gap.error_gap", "gap.error_gap_ci95")
            if answers
            else ("gap.train_loss", "gap.test_loss", "gap.loss_gap", "gap.loss_gap_ci95")
        ),
    )


RULE = FindingRule(
    id="negative-gap",
    title="Better on test than on train",
    meaning="Whether the gap is below zero by more than chance in drawing the samples.",
    conditions="watch: the 95 % interval of the error gap, or of a regression's loss gap, lies below zero",
    source="Counting; see the cards gap.error_gap and gap.loss_gap.",
    origin=(
        "Zero, and a 95 % interval: where there is no gap, one such interval in forty lies below zero. Of networks "
        "trained for the rules (samples/finding_rates.json) it was so for 0 of 60 with clean train labels, and for 5 "
        "of 5 that were stopped before they learnt the quarter of their train labels that was wrong."
    ),
    cannot_tell="Which of the reasons it is.",
    find=find,
    rests_on=("gap",),
)
