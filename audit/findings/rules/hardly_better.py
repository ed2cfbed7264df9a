"""Is the model hardly better than always giving the commonest answer?"""

from __future__ import annotations

from audit.findings.conditions import guesses_on_test
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import within
from audit.measures.report import Report
from audit.report.fields import Interval
from audit.report.numbers import number, percent, share

FEW = 0.2  # of the mistakes of the constant answer that the model avoids


def find(report: Report) -> Observation | None:
    """Speaks where there is little skill, and worse-than-guessing does not already say that there is none."""
    return _regression(report) if report.model.task == "regression" else _classification(report)


def _classification(report: Report) -> Observation | None:
    gap, counts = report.gap, report.data.test.class_counts
    if not counts or gap.test_accuracy is None or gap.test_accuracy_ci95 is None or guesses_on_test(report):
        return None
    commonest = max(counts.values()) / max(1, sum(counts.values()))
    if commonest >= 1:
        return None
    low, high = ((end - commonest) / (1 - commonest) for end in gap.test_accuracy_ci95)
    if low > 0 and high >= FEW:
        return None
    return Observation(
        level="watch" if high < FEW else "note",
        title="Hardly better than always giving the commonest answer" if high < FEW else NOT_SHOWN,
        explanation=(
            f"It is right on {percent(gap.test_accuracy)} of {number(report.data.test.samples)} test samples"
            f"{within(gap.test_accuracy_ci95, 'percent')}; always answering the commonest class would be right on "
            f"{share(commonest)}. {_skill((low, high))}"
        ),
        advice=(
            "Ask whether the model is worth its use at this accuracy. Where rare classes are what counts, look at the "
            "errors class by class instead: the accuracy of a model that is good at them may be no higher."
        ),
        evidence=("gap.test_accuracy", "gap.test_accuracy_ci95", "data.test.class_counts", "data.test.samples"),
    )


NOT_SHOWN = "These samples do not show that the model beats always giving the commonest answer"


def _skill(bounds: tuple[float, float]) -> str:
    if bounds[1] < FEW:
        return f"Of the mistakes of that answer the model avoids at most {share(max(0.0, bounds[1]))}."
    return "The difference can be chance."


def _regression(report: Report) -> Observation | None:
    explained, bounds = report.gap.test_r2, report.gap.test_r2_ci95
    if explained is None or explained < 0 or bounds is None or not _little(bounds):
        return None
    return Observation(
        level="watch",
        title="Hardly better than always answering the mean",
        explanation=(
            f"It explains {share(explained)} of the variance of the test targets{within(bounds, 'percent')}; always "
            "answering their mean explains none. Noise in the targets looks the same."
        ),
        advice="Ask whether the model is worth its use with errors of this size, and what the inputs can tell at all.",
        evidence=("gap.test_r2", "gap.test_r2_ci95"),
    )


def _little(bounds: Interval) -> bool:
    return bounds is not None and bounds[1] < FEW


RULE = FindingRule(
    id="hardly-better",
    title="Hardly better than a constant answer",
    meaning="Whether the model avoids a good part of the mistakes that always giving the commonest answer makes.",
    conditions=(
        f"watch: the upper end of the 95 % interval of (accuracy − commonest) / (1 − commonest) on test is below "
        f"{number(FEW)}, or of a regression's R² that is not negative; note: the lower end is not above 0. Silent "
        "where worse-than-guessing calls the model a guesser"
    ),
    source="Counting; the share of mistakes avoided is Goodman and Kruskal's λ (1954).",
    origin="Zero is a natural mark; a fifth is a convention, so that it is never a concern.",
    cannot_tell="Whether the inputs hold more, and how good the model is at rare classes.",
    find=find,
    rests_on=("gap",),
)
