"""Which classes carry the gap?"""

from __future__ import annotations

from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import listed, unit, within
from audit.measures.gap.block import ClassGap
from audit.measures.report import Report
from audit.report.numbers import number

LEAST = 10  # samples of a class in each split, below which its interval is not believed


def find(report: Report) -> Observation | None:
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
    return known and min(row.train_samples, row.test_samples) >= LEAST


RULE = FindingRule(
    id="gap-classes",
    title="Classes and the gap",
    meaning="Whether some classes lose more on unseen samples than the model does on average.",
    conditions=(
        f"note: lower end of a class's 95 % interval of the loss gap above the upper end of the overall one and above "
        f"zero, with at least {LEAST} samples of the class in each split"
    ),
    source="Counting; see the card gap.loss_gap.",
    origin=f"Intervals that do not overlap, stricter than a test at 5 % for one class. {NO_LIMIT}",
    cannot_tell="Whether the class is hard by nature, short of samples or badly labelled.",
    find=find,
    rests_on=("gap",),
)
