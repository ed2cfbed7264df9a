"""Classes: are they tested as they were trained, is one far weaker than the others, which carry the gap?"""

from __future__ import annotations

import math
from statistics import NormalDist

from audit.findings.rule import NO_LIMIT, FindingRule, Observation, listed, unit, within
from audit.measures import Report
from audit.measures.gap.block import ClassGap
from audit.measures.hygiene.block import ClassBalance
from audit.report import SplitReport
from audit.report.numbers import interval, number, percent

# Do train and test ask for the same classes in the same proportions?


P = "hygiene.class_balance"


def find_balance(report: Report) -> Observation | None:
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


BALANCE = FindingRule(
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
    find=find_balance,
)


# Is the model far worse on one class than on all together?


TESTED = 10  # test samples of a class, below which nothing is said of it
TWICE, TENTH = 2.0, 0.1  # far behind: wrong twice as often as the whole, and by ten percentage points more


def find_weak_class(report: Report) -> Observation | None:
    """Speaks where a class is behind by more than chance explains, over all classes, and by much."""
    whole, rows = report.gap.test_error, report.gap.per_class
    judged = [place for place, row in enumerate(rows) if row.test_samples >= TESTED and row.test_error is not None]
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


WEAK_CLASS = FindingRule(
    id="weak-class",
    title="A class far behind",
    meaning="Whether the model is wrong far more often on a class than on all test samples together.",
    conditions=(
        f"watch: a class with at least {TESTED} test samples is wrong at least twice as often as the whole and by at "
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
    find=find_weak_class,
    rests_on=("gap",),
)


# Which classes carry the gap?


IN_EACH = 10  # samples of a class in each split, below which its interval is not believed


def find_gap_classes(report: Report) -> Observation | None:
    """Speaks where a class is worse than all together by more than both intervals allow."""
    overall, rows = report.gap.loss_gap_ci95, report.gap.per_class
    if overall is None or len(rows) < 2:
        return None
    above = [place for place, row in enumerate(rows) if _stands_out(row, overall[1])]
    if not above:
        return None
    above.sort(key=lambda place: -(rows[place].loss_gap or 0.0))
    worst = rows[above[0]]
    things, names = f"{unit(report)}s", listed([rows[place].name for place in above])
    return Observation(
        level="note",
        title=f"The gap is larger than average in {'class' if len(above) == 1 else 'classes'} {names}",
        explanation=(
            f"Largest in class {worst.name}: its {things} cost {number(worst.loss_gap)} more on test than on train"
            f"{within(worst.loss_gap_ci95)}, against {number(report.gap.loss_gap)} over all classes{within(overall)}. "
            f"It has {number(worst.train_samples)} train and {number(worst.test_samples)} test {things}. Some classes "
            "are harder by nature, so that this alone shows no fault."
        ),
        advice=f"Look at the costliest test samples of class {worst.name}, and at its train labels and their number.",
        evidence=(
            "gap.loss_gap",
            "gap.loss_gap_ci95",
            *(f"gap.per_class[{place}].{key}" for place in above for key in ("name", "loss_gap", "loss_gap_ci95")),
        ),
    )


def _stands_out(row: ClassGap, limit: float) -> bool:
    known = row.loss_gap is not None and row.loss_gap_ci95 is not None and row.loss_gap_ci95[0] > max(limit, 0.0)
    return known and min(row.train_samples, row.test_samples) >= IN_EACH


GAP_CLASSES = FindingRule(
    id="gap-classes",
    title="Classes and the gap",
    meaning="Whether some classes lose more on unseen samples than the model does on average.",
    conditions=(
        f"note: lower end of a class's 95 % interval of the loss gap above the upper end of the overall one and above "
        f"zero, with at least {IN_EACH} samples of the class in each split"
    ),
    source="Counting; see the card gap.loss_gap.",
    origin=f"Intervals that do not overlap, stricter than a test at 5 % for one class. {NO_LIMIT}",
    cannot_tell="Whether the class is hard by nature, short of samples or badly labelled.",
    find=find_gap_classes,
    rests_on=("gap",),
)
