"""The report in one sentence: how good, against what, where weakest, how sure, and what to do next.

Every limit behind its level stands here, and the card below says the same to readers.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

from audit.findings.rule import broken_blocks, sentence, some, why_no_gap
from audit.maths.shares import wilson
from audit.measures import Report
from audit.measures.gap.block import ClassGap
from audit.report import BottomLine, Level, Weakest
from audit.report.fields import Card, Interval
from audit.report.numbers import number

FAR_BETTER = 0.25  # of the constant answer's mistakes, or of its squared error: the most that a good model makes
MOSTLY_WRONG = 0.5  # share of a class's test samples answered wrongly
SHORT = 120  # letters of an advice's first sentence that still belong in a bottom line
LEAST = 10  # test samples of a class, below which it is not called the weakest
UNSETTLED = "Rely on no number of this report before that is settled."
BROKEN = "a self-check that the numbers rest on failed"
BELOW = "What to do about it stands with that finding."
HOLD_AGAINST = "Hold these numbers against the limit of your release (`gen-audit check`)."

CARD = Card(
    id="bottom_line.level",
    title="Level of the bottom line",
    meaning="How much attention the report asks for as a whole. It is no grade of the model.",
    formula=(
        "concern: a finding is a concern, or nothing can be said about new samples; watch: a finding is a watch, or "
        "the 95 % interval does not show the model to be better than a constant answer, or shows that a class is "
        f"answered wrongly on more than {number(MOSTLY_WRONG)} of its samples; good: none of these, and the interval's "
        f"bad end has at most {number(FAR_BETTER)} of the constant answer's mistakes (regression: of its squared "
        f"error), and no class is wrong on more than {number(MOSTLY_WRONG)}; note: everything else"
    ),
    source="the findings of the report, and what was counted on test",
    variant=(
        f"Limits: {number(FAR_BETTER)} and {number(MOSTLY_WRONG)} are conventions. The constant answer is the "
        "commonest class of train or, in a regression, the mean target of train. The weakest class is the one whose "
        f"interval has the highest lower end, among those with {LEAST} test samples or more; whether it may be chance "
        "that it is weaker than the whole is asked at 5 % for all classes together."
    ),
    can_tell="Whether anything in this report should be looked at before the model is relied on.",
    cannot_tell="Whether the model is good enough for your use, nor how it does on data from elsewhere or from later.",
    covers=("bottom_line",),
)


def draw_bottom_line(report: Report) -> BottomLine:
    """From the gap and the findings of a report, which must be there."""
    why = why_no_gap(report) or (BROKEN if "gap" in broken_blocks(report) else None)
    if why is not None:
        return BottomLine(
            level="concern",
            sentence=f"Nothing can be said about new samples: {why}.",
            because=UNSETTLED,
            advice=_advice(report),
            number="none",
        )
    regression = report.model.task == "regression"
    value, bounds, guess = _typical_error(report) if regression else _right_answers(report)
    line = BottomLine(
        level="note",
        sentence="",
        because="",
        advice=_advice(report),
        number="rmse" if regression else "accuracy",
        value=value,
        value_ci95=bounds,
        guess=guess,
        weakest=_weakest(report),
    )
    level, because = _level(report, line)
    told = _off_by(report, line) if regression else _right_on(report, line)
    return replace(line, level=level, sentence=" ".join(told), because=because)


def of_hundred(share: float) -> str:
    """A share as a count of a hundred, with a decimal where whole ones would hide the rest.

    >>> of_hundred(0.928), of_hundred(0.9964), of_hundred(0.0004), of_hundred(1.0)
    ('93', '99.6', 'fewer than 0.1', '100')
    """
    count = 100 * share
    if 1 <= count <= 99 or count in (0, 100):
        return f"{count:.0f}"
    if count < 0.05:
        return "fewer than 0.1"
    return "more than 99.9" if count > 99.95 else f"{count:.1f}"


# The level.


def _level(report: Report, line: BottomLine) -> tuple[Level, str]:
    """The level, and what it follows from."""
    counts = {level: sum(finding.level == level for finding in report.findings) for level in ("concern", "watch")}
    found = [some(count, level, f"{level}es" if level == "watch" else "") for level, count in counts.items() if count]
    part, weakest = _part_of_guess(line), line.weakest
    doubts = [f"{' and '.join(found)} among the findings"] if found else []
    if part is not None and part >= 1:
        doubts.append("not shown to be better than a constant answer")
    if weakest and weakest.error_ci95 and weakest.error_ci95[0] > MOSTLY_WRONG:
        doubts.append(f"class {weakest.name} is mostly answered wrongly")
    if doubts:
        return "concern" if counts["concern"] else "watch", sentence("; ".join(doubts))
    if part is not None and part <= FAR_BETTER and not (weakest and weakest.error > MOSTLY_WRONG):
        return "good", "Far better than a constant answer, and nothing to watch among the findings."
    return "note", "Nothing to watch among the findings, but not shown to be far better than a constant answer."


def _part_of_guess(line: BottomLine) -> float | None:
    """The model's mistakes, or squared error, over the constant answer's, at the interval's bad end; None: unknown."""
    if line.value is None or line.guess is None:
        return None
    low, high = line.value_ci95 or (line.value, line.value)
    mine, constant = (high, line.guess) if line.number == "rmse" else (1 - low, 1 - line.guess)
    part = mine / constant if constant > 0 else None
    return part * part if part is not None and line.number == "rmse" else part


def _advice(report: Report) -> str:
    """What to do next: what the heaviest finding says; what a model has not learnt comes before what it does badly."""
    heavy = [finding for finding in report.findings if finding.level == "concern"]
    heavy += [finding for finding in report.findings if finding.id == "underfit" and finding not in heavy]
    heavy += [finding for finding in report.findings if finding.level == "watch"]
    if not heavy:
        return HOLD_AGAINST
    first = sentence(heavy[0].advice.partition(". ")[0])
    return f"{sentence(heavy[0].title)} {first if len(first) <= SHORT else BELOW}"


# A classifier.


def _right_answers(report: Report) -> tuple[float | None, Interval, float | None]:
    gap = report.gap
    bounds = gap.test_error_ci95
    right = None if gap.test_error is None else 1 - gap.test_error
    return right, None if bounds is None else (1 - bounds[1], 1 - bounds[0]), _commonest(report)


def _commonest(report: Report) -> float | None:
    """How often always answering the commonest class of train would be right on test."""
    train, test = report.data.train.class_counts, report.data.test.class_counts
    if not train or not test or not sum(test.values()):
        return None
    return test.get(max(train, key=lambda name: train[name]), 0) / sum(test.values())


def _weakest(report: Report) -> Weakest | None:
    """The class that is most surely worse than others; None where none makes a mistake."""
    rows = [row for row in report.gap.per_class if row.test_samples >= LEAST and 0 < (row.test_error or 0.0) <= 1]
    if len(report.gap.per_class) < 2 or not rows:
        return None
    row = max(rows, key=_lower)
    z = -NormalDist().inv_cdf(0.025 / len(report.gap.per_class))
    wrong = row.test_error or 0.0
    return Weakest(
        name=row.name,
        error=wrong,
        error_ci95=wilson(wrong, row.test_samples),
        may_be_chance=wilson(wrong, row.test_samples, z)[0] <= (report.gap.test_error or 0.0),
    )


def _lower(row: ClassGap) -> float:
    return wilson(row.test_error or 0.0, row.test_samples)[0]


def _right_on(report: Report, line: BottomLine) -> list[str]:
    if line.value is None:
        return ["There is no share of right answers to speak of."]
    ends = line.value_ci95
    within = "" if ends is None else f" ({of_hundred(ends[0])} to {of_hundred(ends[1])})"
    against = (
        ""
        if line.guess is None
        else f"; always answering the commonest class would be right on {of_hundred(line.guess)}"
    )
    return [f"Right on about {of_hundred(line.value)} of 100 {_which(report)}{within}{against}.", *_where(line.weakest)]


def _where(weakest: Weakest | None) -> list[str]:
    if weakest is None:
        return []
    ends = weakest.error_ci95
    within = "" if ends is None else f" ({of_hundred(ends[0])} to {of_hundred(ends[1])})"
    chance = ", which may be chance" if weakest.may_be_chance else ""
    return [f"Weakest: class {weakest.name}, wrong on {of_hundred(weakest.error)} of 100{within}{chance}."]


def _which(report: Report) -> str:
    if report.data.split_is_ours:
        return "samples that gen-audit held back itself, and that the model may have been trained on"
    return "new samples like these"


# A regression.


def _typical_error(report: Report) -> tuple[float | None, Interval, float | None]:
    return report.gap.test_rmse, report.gap.test_rmse_ci95, report.gap.test_rmse_guess


def _off_by(report: Report, line: BottomLine) -> list[str]:
    if line.value is None:
        return ["There is no typical error to speak of."]
    ends = line.value_ci95
    within = "" if ends is None else f" ({number(ends[0])} to {number(ends[1])})"
    against = "" if line.guess is None else f"; always answering the mean would be off by {number(line.guess)}"
    typical = f"Typically off by {number(line.value)}{within}, in the target's units, on {_which(report)}{against}."
    return [typical, *_large_errors(report)]


def _large_errors(report: Report) -> list[str]:
    """How often an error is larger than nearly all errors on train, of a model with one output."""
    outputs = report.calibration.outputs if report.calibration is not None else []
    rows = outputs[0].coverage if report.model.outputs == 1 and outputs else []
    return [
        f"Large errors: off by more than {number(row.limit)} on {of_hundred(1 - row.test_within)} of 100"
        f"{_missed(row.test_within_ci95)}, and on {of_hundred(1 - row.train_within)} of 100 train samples."
        for row in rows
        if row.id == "share-95"
    ]


def _missed(within: Interval) -> str:
    return "" if within is None else f" ({of_hundred(1 - within[1])} to {of_hundred(1 - within[0])})"
