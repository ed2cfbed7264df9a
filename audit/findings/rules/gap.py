"""How much worse is the model on unseen samples, and is that more than chance?"""

from __future__ import annotations

from audit.findings.conditions import above_zero, below_zero
from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import asked, within
from audit.measures.report import Report
from audit.report.numbers import number, percent, points

ADVICE = (
    "Whether this is acceptable depends on the use: hold it against the limit of your release (`gen-audit check`) or "
    "against an earlier model on the same data (`gen-audit compare`)."
)


def find(report: Report) -> Observation | None:
    """Always speaks, where there is a gap to speak of at all."""
    return _of_loss(report) if report.gap.error_gap is None else _of_answers(report, report.gap.error_gap)


def _of_answers(report: Report, error_gap: float) -> Observation:
    gap = report.gap
    size = f"{abs(100 * error_gap):.2f} percentage points"
    bounds = gap.error_gap_ci95
    if above_zero(bounds):
        title = f"On unseen samples the model is wrong more often than on its train samples, by {size}"
    elif below_zero(bounds):
        title = f"On unseen samples the model is wrong less often than on its train samples, by {size}"
    elif bounds is None:
        title = f"The share of wrong answers differs by {size} between test and train; chance cannot be told apart"
    else:
        title = "These samples do not show whether the model is wrong more often on unseen samples"
    perfect = " On train it makes no mistake, so the train error cannot tell a good fit from one learnt by heart."
    return Observation(
        level="note",
        title=title,
        explanation=(
            f"It answers {percent(gap.train_error)} of {asked(report, 'train')} and "
            f"{percent(gap.test_error)} of {asked(report, 'test')} wrongly: a gap of "
            f"{points(error_gap)}{within(bounds, 'points')}. {_loss(report)}{perfect if gap.train_error == 0 else ''}"
        ),
        advice=_advice(report, above_zero(bounds) or below_zero(bounds)),
        evidence=("gap.train_error", "gap.test_error", "gap.error_gap", "gap.error_gap_ci95", *LOSS),
    )


def _of_loss(report: Report) -> Observation:
    gap = report.gap
    bounds = gap.loss_gap_ci95
    if above_zero(bounds):
        title = "On unseen samples the model is further off than on its train samples"
    elif below_zero(bounds):
        title = "On unseen samples the model is less far off than on its train samples"
    else:
        title = "These samples do not show whether the model is further off on unseen samples"
    typical = (
        ""
        if gap.train_rmse is None or gap.test_rmse is None
        else f"Its typical error (RMSE) is {number(gap.train_rmse)} on {number(report.data.train.samples)} train and "
        f"{number(gap.test_rmse)} on {number(report.data.test.samples)} test samples. "
    )
    return Observation(
        level="note",
        title=title,
        explanation=f"{typical}{_loss(report)} The loss is half the squared error, in the squared units of the target.",
        advice=_advice(report, above_zero(bounds) or below_zero(bounds)),
        evidence=("gap.train_rmse", "gap.test_rmse", "gap.train_r2", "gap.test_r2", *LOSS),
    )


LOSS = ("gap.train_loss", "gap.test_loss", "gap.loss_gap", "gap.loss_gap_ci95")


def _loss(report: Report) -> str:
    gap = report.gap
    bounds = gap.loss_gap_ci95
    if above_zero(bounds):
        reading = "more than chance alone would give"
    elif below_zero(bounds):
        reading = "a lower loss on test than chance alone would give"
    else:
        reading = "not told apart from chance"
    return (
        f"The mean loss is {number(gap.train_loss)} on train and {number(gap.test_loss)} on test, a difference of "
        f"{number(gap.loss_gap)}{within(bounds)}: {reading}."
    )


def _advice(report: Report, clear: bool) -> str:
    if clear:
        return ADVICE
    return f"More test samples narrow the interval: with four times as many it is about half as wide. {ADVICE}"


RULE = FindingRule(
    id="gap",
    title="Size of the gap",
    meaning="How much worse the model does on unseen samples, and whether chance in drawing them would do as much.",
    conditions="note, always, unless the gap is void; the title follows the 95 % interval: above, below or around zero",
    source="Counting; see the cards gap.error_gap and gap.loss_gap.",
    origin=f"Zero, and a 95 % interval: where there is no gap, one such interval in twenty misses zero. {NO_LIMIT}",
    cannot_tell="How the model does on data from elsewhere or from later, and how large a gap is too large.",
    find=find,
    rests_on=("gap",),
)
