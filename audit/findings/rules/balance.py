"""Do train and test ask for the same classes in the same proportions?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import listed, unit
from audit.measures.hygiene.block import ClassBalance
from audit.measures.report import Report
from audit.report.numbers import number, percent
from audit.report.report import SplitReport

P = "hygiene.class_balance"


def find(report: Report) -> Observation | None:
    """Classes that were never trained first, then proportions."""
    if report.hygiene is None:
        return None
    balance = report.hygiene.class_balance
    absent = set(balance.missing_in_test or ())
    untrained = [name for name in balance.missing_in_train or () if name not in absent]
    if untrained:
        train = report.data.train
        return _unused(untrained, train) if train.samples < train.total else _untrained(untrained, unit(report))
    return _different(balance, unit(report)) if balance.differ else None


def _untrained(names: list[str], unit: str) -> Observation:
    it, its = ("it", "its") if len(names) == 1 else ("them", "their")
    return Observation(
        level="concern",
        title=f"{_which(names)} tested but not trained: {listed(names)}",
        explanation=(
            f"The test split has {unit}s of {it}, the train split none. The model cannot have learnt {it} from these "
            f"data, and the gap counts {its} {unit}s all the same."
        ),
        advice="Check that the folder holds the whole train split and that the class names agree in both splits.",
        evidence=(f"{P}.missing_in_train", f"{P}.train", f"{P}.test"),
    )


def _unused(names: list[str], train: SplitReport) -> Observation:
    it, its = ("it", "its") if len(names) == 1 else ("them", "their")
    return Observation(
        level="note",
        title=f"{_which(names)} tested but not in the part of train that was used: {listed(names)}",
        explanation=(
            f"{number(train.samples)} of {number(train.total)} train samples were used, and none of {it} is among "
            f"them. Whether the model was trained on {it} is not known from here; the gap counts {its} test samples "
            "all the same."
        ),
        advice="Run the audit again with a larger --samples, or with 0 for all.",
        evidence=(f"{P}.missing_in_train", "data.train.samples", "data.train.total"),
    )


def _which(names: list[str]) -> str:
    return "A class is" if len(names) == 1 else f"{number(len(names))} classes are"


def _different(balance: ClassBalance, unit: str) -> Observation:
    return Observation(
        level="watch",
        title="Train and test have the classes in different proportions",
        explanation=(
            f"{percent(balance.difference)} of the {unit}s would have to change class to make the proportions equal "
            f"(p = {number(balance.p_value)} if both were drawn from the same source). The gap then mixes two things: "
            "new samples, and another mix of easy and hard classes."
        ),
        advice="Read the gap class by class, or draw a test split with the proportions that the model will meet.",
        evidence=(f"{P}.difference", f"{P}.p_value", f"{P}.differ"),
    )


RULE = FindingRule(
    id="class-balance",
    title="Classes in both splits",
    meaning="Whether train and test hold the same classes in the same proportions.",
    conditions=(
        "concern: a class has test samples but no train samples; note: the same, where only a part of train was used; "
        "watch: class_balance.differ (p < 0.01)"
    ),
    source="Pearson (1900), with a permutation distribution; see the card hygiene.class_balance.",
    origin="p < 0.01: one pair of alike splits in a hundred is called different.",
    cannot_tell="Which of the two proportions is that of the real use.",
    find=find,
)
