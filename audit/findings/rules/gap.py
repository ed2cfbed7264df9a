"""How much worse is the model on unseen samples, is that more than chance, and do a few samples carry it?"""

from __future__ import annotations

from audit.findings.rule import (
    NO_LIMIT,
    FindingRule,
    Observation,
    above_zero,
    asked,
    below_zero,
    label,
    labels_in_doubt,
    within,
)
from audit.measures import Report
from audit.report.numbers import number, percent, points, share

# How much worse is the model on unseen samples, and is that more than chance?


ADVICE = (
    "Whether this is acceptable depends on the use: hold it against the limit of your release (`gen-audit check`) or "
    "against an earlier model on the same data (`gen-audit compare`)."
)


def find_gap(report: Report) -> Observation | None:
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


GAP = FindingRule(
    id="gap",
    title="Size of the gap",
    meaning="How much worse the model does on unseen samples, and whether chance in drawing them would do as much.",
    conditions="note, always, unless the gap is void; the title follows the 95 % interval: above, below or around zero",
    source="Counting; see the cards gap.error_gap and gap.loss_gap.",
    origin=f"Zero, and a 95 % interval: where there is no gap, one such interval in twenty misses zero. {NO_LIMIT}",
    cannot_tell="How the model does on data from elsewhere or from later, and how large a gap is too large.",
    find=find_gap,
    rests_on=("gap",),
)


# Does the model do better on test than on train, beyond chance?


def find_negative_gap(report: Report) -> Observation | None:
    """Speaks where the whole interval lies below zero."""
    gap = report.gap
    answers = gap.error_gap is not None
    bounds = gap.error_gap_ci95 if answers else gap.loss_gap_ci95
    if not below_zero(bounds):
        return None
    size = (
        f"It is wrong on {percent(gap.test_error)} of test and on {percent(gap.train_error)} of train, a difference of "
        f"{points(gap.error_gap)}{within(bounds, 'points')}."
        if answers
        else f"Its mean loss is {number(gap.test_loss)} on test and {number(gap.train_loss)} on train, a difference of "
        f"{number(gap.loss_gap)}{within(bounds)}."
    )
    doubt = " Train labels are in doubt here, which suggests the last." if labels_in_doubt(report) else ""
    return Observation(
        level="watch",
        title="The model does better on test than on train, beyond chance",
        explanation=(
            f"{size} A model is rarely better on samples that it has not seen. This suggests that test samples are "
            "easier, that they are copies or were used in training, or that train holds samples that were not trained "
            f"on or have wrong labels.{doubt} A gap of this kind is no praise."
        ),
        advice="Look at how the two splits were drawn, and at their classes and sources, before you quote its error.",
        evidence=(
            ("gap.train_error", "gap.test_error", "gap.error_gap", "gap.error_gap_ci95")
            if answers
            else ("gap.train_loss", "gap.test_loss", "gap.loss_gap", "gap.loss_gap_ci95")
        ),
    )


NEGATIVE_GAP = FindingRule(
    id="negative-gap",
    title="Better on test than on train",
    meaning="Whether the gap is below zero by more than chance in drawing the samples.",
    conditions="watch: the 95 % interval of the error gap, or of a regression's loss gap, lies below zero",
    source="Counting; see the cards gap.error_gap and gap.loss_gap.",
    origin=(
        "Zero, and a 95 % interval: where there is no gap, one such interval in forty lies below zero. Of networks "
        "trained for the rules (samples/finding_rates.json) it was so for 0 of 60 with clean train labels, and for 5 "
        "of 5 that were stopped before they learnt the quarter of their train labels that was wrong."
    ),
    cannot_tell="Which of the reasons it is.",
    find=find_negative_gap,
    rests_on=("gap",),
)


# Do a few test samples carry most of the gap?


HALF = 0.5
FEW = 0.1  # of the pairs


def find_gap_samples(report: Report) -> Observation | None:
    """Speaks where the listed samples hold more than half of the gap over pairs."""
    block = report.network.duality
    if block is None or block.samples_share is None or block.samples_share <= HALF or not block.samples:
        return None
    listed = len(block.samples)
    if listed > FEW * block.pairs:
        return None
    more = " Others cost less than their partners." if block.samples_share > 1 else ""
    first = block.samples[0]
    mistakes = "large errors" if report.model.task == "regression" else "confident mistakes"
    return Observation(
        level="note",
        title=_title(listed, block.samples_share),
        explanation=(
            f"Of {number(block.pairs)} test samples, each compared with its most similar train sample, the "
            f"{number(listed)} costliest ({percent(listed / block.pairs)}) hold {share(block.samples_share)} of the "
            f"summed difference in loss, whose mean over all pairs is {number(block.gap)}.{more} A mean "
            f"loss can be ruled by a few {mistakes}."
        ),
        advice=(
            f"Look at them, beginning with test sample {first.index} beside train sample {first.partner}: "
            f"wrong test {label(report)}s, odd samples and true mistakes ask for different remedies."
        ),
        evidence=(
            "network.duality.samples_share",
            "network.duality.pairs",
            "network.duality.samples[0].index",
            "network.duality.samples[0].partner",
            "network.duality.samples[0].gap",
        ),
    )


def _title(listed: int, part: float) -> str:
    if part > 1:
        return f"{number(listed)} test samples cost more than the whole difference between test samples and partners"
    return f"{number(listed)} test samples make up {share(part)} of the summed differences to their partners"


GAP_SAMPLES = FindingRule(
    id="gap-samples",
    title="Samples and the gap",
    meaning="Whether a few test samples account for most of the gap over pairs.",
    conditions=(
        "note: the costliest pairs that the report lists are at most a tenth of all pairs and hold more than half of a "
        "positive gap over pairs"
    ),
    source="Counting over pairs of a test sample and its nearest train sample; with classes, the nearest of its own.",
    origin=f"One half, a natural mark. {NO_LIMIT}",
    cannot_tell="Whether these samples have wrong labels or targets, are odd or simply hard.",
    find=find_gap_samples,
    rests_on=("gap",),
)
