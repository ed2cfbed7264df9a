"""Do train and test ask for the same classes in the same proportions?"""

from __future__ import annotations

from audit.blocks.hygiene import ClassBalance
from audit.findings.rule import Rule, Verdict
from audit.findings.words import listed
from audit.numbers import number, percent
from audit.report import Report

P = "hygiene.class_balance"


def find(report: Report) -> Verdict | None:
    """Classes that were never trained first, then proportions."""
    if report.hygiene is None:
        return None
    balance = report.hygiene.class_balance
    absent = set(balance.missing_in_test or ())
    untrained = [name for name in balance.missing_in_train or () if name not in absent]
    if untrained:
        return _untrained(untrained)
    return _different(balance) if balance.differ else None


def _untrained(names: list[str]) -> Verdict:
    which = "A class is" if len(names) == 1 else f"{number(len(names))} classes are"
    return Verdict(
        level="concern",
        title=f"{which} tested but not trained: {listed(names)}",
        explanation=(
            "The test split has samples of it, the train split none. The model cannot have learnt it from these data, "
            "and the gap counts its samples all the same."
        ),
        advice="Check that the folder holds the whole train split and that the class names agree in both splits.",
        evidence=(f"{P}.missing_in_train", f"{P}.train", f"{P}.test"),
    )


def _different(balance: ClassBalance) -> Verdict:
    return Verdict(
        level="watch",
        title="Train and test have the classes in different proportions",
        explanation=(
            f"{percent(balance.difference)} of the samples would have to change class to make the proportions equal "
            f"(p = {number(balance.p_value)} if both were drawn from the same source). The gap then mixes two things: "
            "new samples, and another mix of easy and hard classes."
        ),
        advice="Read the gap class by class, or draw a test split with the proportions that the model will meet.",
        evidence=(f"{P}.difference", f"{P}.p_value", f"{P}.differ"),
    )


RULE = Rule(
    id="class-balance",
    title="Classes in both splits",
    meaning="Whether train and test hold the same classes in the same proportions.",
    conditions="concern: a class has test samples but no train samples; watch: class_balance.differ (p < 0.01)",
    source="Pearson (1900), with a permutation distribution; see the card hygiene.class_balance.",
    origin="p < 0.01: one pair of alike splits in a hundred is called different.",
    cannot_tell="Which of the two proportions is that of the real use.",
    find=find,
)
