"""Is the model far worse on one class than on all together?"""

from __future__ import annotations

import math
from statistics import NormalDist

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import listed
from audit.measures.gap.block import ClassGap
from audit.measures.report import Report
from audit.report.numbers import interval, number, percent

LEAST = 10  # test samples of a class, below which nothing is said of it
TWICE, TENTH = 2.0, 0.1  # far behind: wrong twice as often as the whole, and by ten percentage points more


def find(report: Report) -> Observation | None:
    """Speaks where a class is behind by more than chance explains, over all classes, and by much."""
    whole, rows = report.gap.test_error, report.gap.per_class
    judged = [place for place, row in enumerate(rows) if row.test_samples >= LEAST and row.test_error is not None]
    if whole is None or len(judged) < 2:
        return None
    behind = [place for place in judged if _far_behind(rows[place], whole, len(judged))]
    if not behind:
        return None
    behind.sort(key=lambda place: -(rows[place].test_error or 0.0))
    worst = rows[behind[0]]
    low, high = corrected(worst.test_error or 0.0, worst.test_samples, len(judged))
    names = listed([rows[place].name for place in behind])
    return Observation(
        level="watch",
        title=f"Far weaker on {'class' if len(behind) == 1 else 'classes'} {names} than on the whole",
        explanation=(
            f"Of {number(worst.test_samples)} test samples of class {worst.name}, {percent(worst.test_error)} are "
            f"answered wrongly (interval {interval((low, high), 'percent')}, widened as {number(len(judged))} classes "
            f"were looked at), against {percent(whole)} of all test samples. An average over classes hides this."
        ),
        advice=(
            f"Decide whether class {worst.name} may be this weak where the model is used. Look at its mistakes in the "
            f"confusion table, at its {number(worst.train_samples)} train samples and at their labels."
        ),
        evidence=(
            "gap.test_error",
            *(f"gap.per_class[{place}].{key}" for place in behind for key in ("name", "test_samples", "test_error")),
        ),
    )


def _far_behind(row: ClassGap, whole: float, classes: int) -> bool:
    error = row.test_error or 0.0
    low, _ = corrected(error, row.test_samples, classes)
    return low > whole and error >= max(TWICE * whole, whole + TENTH)


def corrected(share: float, n: int, classes: int) -> tuple[float, float]:
    """Wilson's interval of a proportion that is right for all classes at once in 95 of 100 cases (Bonferroni).

    >>> [round(end, 3) for end in corrected(0.3, 100, 10)]
    [0.19, 0.439]
    """
    z = NormalDist().inv_cdf(1 - 0.025 / classes)
    centre, scale = share + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(max(0.0, share * (1 - share)) / n + z * z / (4 * n * n))
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


RULE = FindingRule(
    id="weak-class",
    title="A class far behind",
    meaning="Whether the model is wrong far more often on a class than on all test samples together.",
    conditions=(
        f"watch: a class with at least {LEAST} test samples is wrong at least twice as often as the whole and by at "
        "least ten percentage points more, and the lower end of its Wilson interval, corrected for the number of "
        "classes, is above the error of the whole"
    ),
    source="Counting; Wilson (1927), Bonferroni's correction.",
    origin=(
        "Twice and ten points are conventions. The interval: of 2,000 drawn reports whose classes were equally hard it "
        "spoke for fewer than 1 in 100, and for more than 9 in 10 where one of ten classes was wrong on 40 % of 100 "
        "samples instead of 10 % (counted in tests/findings/test_class_and_split_rules.py)."
    ),
    cannot_tell="Groups of samples that have no label of their own, and why a class is weak.",
    find=find,
    rests_on=("gap",),
)
