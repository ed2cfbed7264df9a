"""Would a constant answer have done better on the test samples?"""

from __future__ import annotations

import math

from audit.findings.rule import Rule, Verdict
from audit.numbers import number, percent
from audit.report import Report


def find(report: Report) -> Verdict | None:
    """Speaks where knowing nothing would have cost less."""
    return _regression(report) if report.model.task == "regression" else _classification(report)


def _classification(report: Report) -> Verdict | None:
    counts, gap = report.data.test.class_counts, report.gap
    if not counts or gap.test_loss_ci95 is None:
        return None
    constant = _entropy(list(counts.values()))
    if gap.test_loss_ci95[0] <= constant:
        return None
    return Verdict(
        level="concern",
        title="On unseen samples the model's probabilities are worth less than a constant guess",
        explanation=(
            f"Its mean loss on test is {number(gap.test_loss)} (95 % interval from {number(gap.test_loss_ci95[0])}); "
            f"always answering with the classes' own shares would cost {number(constant)}. Its answers may still be "
            f"right more often than a guess ({percent(gap.test_accuracy)} are right), but it is far too sure of the "
            "wrong ones."
        ),
        advice=(
            "Do not use its probabilities as they are. Fit one temperature on held-out samples, and look at the test "
            "samples that cost most, listed in the section on where the gap comes from."
        ),
        evidence=("gap.test_loss", "gap.test_loss_ci95", "gap.test_accuracy", "data.test.class_counts"),
    )


def _regression(report: Report) -> Verdict | None:
    explained = report.gap.test_r2
    if explained is None or explained >= 0:
        return None
    return Verdict(
        level="watch",
        title="On unseen samples the model predicts worse than their mean would",
        explanation=(
            f"R² is {number(explained)} on {number(report.data.test.samples)} test samples, below the 0 of always "
            f"answering their mean; on train it is {number(report.gap.train_r2)}. With few test samples that can be "
            "chance: R² has no interval here."
        ),
        advice="Compare the targets of train and test, in scale and range, before looking for a fault of the model.",
        evidence=("gap.test_r2", "gap.train_r2", "data.test.samples"),
    )


def _entropy(counts: list[int]) -> float:
    total = sum(counts)
    return -sum(n / total * math.log(n / total) for n in counts if n)


RULE = Rule(
    id="worse-than-guessing",
    title="Worse than a constant guess",
    meaning="Whether the model's confidence does more harm than good on unseen samples.",
    conditions=(
        "concern: lower end of the test loss's 95 % interval > entropy of the test labels, the least that any constant "
        "answer costs; regression, watch: test R² < 0"
    ),
    source="The definition of entropy; that of R².",
    origin="A natural scale: what costs nothing to do.",
    cannot_tell="How often the answers are right: a model that is right but too sure fails here, too.",
    find=find,
    rests_on=("gap",),
)
