"""Would a constant answer have done better on the test samples?"""

from __future__ import annotations

import math

from audit.findings.conditions import below_zero, chance, guesses_on_test
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import asked, unit, within
from audit.measures.report import Report
from audit.report.numbers import number, percent, share


def find(report: Report) -> Observation | None:
    """Speaks where knowing nothing would have cost less."""
    return _regression(report) if report.model.task == "regression" else _classification(report)


def _classification(report: Report) -> Observation | None:
    return _guessed(report) if guesses_on_test(report) else _too_sure(report)


def _guessed(report: Report) -> Observation:
    gap = report.gap
    return Observation(
        level="concern",
        title="On unseen samples the model is right no more often than a guess",
        explanation=(
            f"It is right on {percent(gap.test_accuracy)} of {asked(report, 'test')}; guessing "
            f"among the classes gives {share(chance(report))}, balanced over classes. On train it is right on "
            f"{percent(gap.train_accuracy)}: what it learnt there does not carry over to these test samples."
        ),
        advice=(
            "Check first that test has the labels, the order of classes and the scaling of train. If so, the model has "
            "learnt nothing that holds beyond its train samples: check the train labels, and do not use it."
        ),
        evidence=("gap.test_accuracy", "gap.test_accuracy_ci95", "gap.train_accuracy", "gap.test_loss", "data.classes"),
    )


def _too_sure(report: Report) -> Observation | None:
    counts, gap = report.data.test.class_counts, report.gap
    if not counts or gap.test_loss_ci95 is None:
        return None
    positions = gap.test_positions is not None
    constant = math.log(len(counts)) if positions else _entropy(list(counts.values()))
    guess = "giving every class the same probability" if positions else "answering with the classes' own shares"
    if gap.test_loss_ci95[0] <= constant:
        return None
    return Observation(
        level="concern",
        title="On unseen samples the model's probabilities are worth less than a constant guess",
        explanation=(
            f"Its mean loss on test is {number(gap.test_loss)} (95 % interval from {number(gap.test_loss_ci95[0])}); "
            f"always {guess} would cost {number(constant)}. It is right on "
            f"{percent(gap.test_accuracy)} of the test {unit(report)}s, but far too sure where it is wrong."
        ),
        advice=(
            "Do not use its probabilities as they are. Fit one temperature on held-out samples, and look at the test "
            "samples that cost most, shown under failures and suspects."
        ),
        evidence=("gap.test_loss", "gap.test_loss_ci95", "gap.test_accuracy", "data.test.class_counts"),
    )


def _regression(report: Report) -> Observation | None:
    explained, bounds = report.gap.test_r2, report.gap.test_r2_ci95
    if explained is None or explained >= 0:
        return None
    clear = below_zero(bounds)
    reading = (
        "That is more than chance in drawing the test samples would give."
        if clear
        else "The interval reaches above 0, so that it can be chance."
        if bounds is not None
        else "There is no interval for it, so that it can be chance."
    )
    return Observation(
        level="watch" if clear else "note",
        title=(
            "On unseen samples the model predicts worse than their mean would"
            if clear
            else "These samples do not show that the model predicts better than their mean would"
        ),
        explanation=(
            f"R² is {number(explained)}{within(bounds)} on {number(report.data.test.samples)} test samples, below the "
            f"0 of always answering their mean; on train it is {number(report.gap.train_r2)}. {reading}"
        ),
        advice="Compare the targets of train and test, in scale and range, before looking for a fault of the model.",
        evidence=("gap.test_r2", "gap.test_r2_ci95", "gap.train_r2", "data.test.samples"),
    )


def _entropy(counts: list[int]) -> float:
    total = sum(counts)
    return -sum(n / total * math.log(n / total) for n in counts if n)


RULE = FindingRule(
    id="worse-than-guessing",
    title="Worse than a constant guess",
    meaning="Whether a constant answer, or a guess, would have done as well on unseen samples.",
    conditions=(
        "concern: mean over classes of the share of test samples answered rightly ≤ 1/C + 3 standard errors of a "
        "guesser (where these are at most a quarter of 1 − 1/C), or lower end of the test loss's 95 % interval > "
        "entropy of the test labels, the least that any constant answer costs (of labels at positions: > ln C, "
        "what equal probabilities cost); regression: test R² < 0, watch where its 95 % interval lies below 0, else note"
    ),
    source="Counting; what the best constant answer costs: labels' entropy or, in a regression, targets' variance.",
    origin="A natural scale: what costs nothing to do.",
    cannot_tell="Why. A model that is often right but too sure of its mistakes fails here, too: the title tells which.",
    find=find,
    rests_on=("gap",),
)
