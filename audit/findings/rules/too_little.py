"""Too little training, too few train samples, too few test samples?"""

from __future__ import annotations

import math

from audit.findings.beside import came_of, effect, level_of, tried
from audit.findings.rule import (
    NO_LIMIT,
    FindingRule,
    Observation,
    broken_blocks,
    capital,
    chance,
    explained,
    fits_train,
    gap_is_real,
    labels_in_doubt,
    some,
    unit,
    within,
)
from audit.findings.rules.steep import hidden_steep_shares, spread_out
from audit.measures import Report
from audit.measures.gap.block import FITTED
from audit.report.numbers import number, percent, share
from audit.report.twins import Curve

# Does the model already fail on what it was trained on?


MOSTLY = 0.5  # wrong on more of the train samples than right, or more of their variance unexplained than explained


def find_underfit(report: Report) -> Observation | None:
    """Speaks where more goes wrong on train than is added on test."""
    return _regression(report) if report.model.task == "regression" else _classification(report)


def _classification(report: Report) -> Observation | None:
    gap = report.gap
    if gap.train_error is None or gap.error_gap_ci95 is None or gap.train_error <= FITTED:
        return None
    if gap.train_error <= gap.error_gap_ci95[1]:
        return None
    paid = _too_sure(report, gap.train_error)
    return Observation(
        level="watch" if gap.train_error > MOSTLY or _helps(report) else "note",
        title="Most of what goes wrong on test already goes wrong on train: consistent with an underfit",
        explanation=(
            f"The model answers {percent(gap.train_error)} of its train {unit(report)}s wrongly"
            f"{within(gap.train_error_ci95, 'percent')}, more than the gap adds to it on test. A small gap is no "
            f"praise here: a model that learns little has little to lose.{paid}{_longer(report)}"
        ),
        advice=(
            "Check first that the input is scaled as in training (--scale, --mean, --std)."
            if paid
            else "Settle the doubtful train labels first: a model that fits them better learns them by heart."
            if labels_in_doubt(report)
            else "Try a longer training, a larger model or less regularisation before you collect more data. Where the "
            "input does not hold the answer, this may also be as good as it gets."
        ),
        evidence=("gap.train_error", "gap.train_error_ci95", "gap.error_gap", "gap.error_gap_ci95", "gap.train_loss"),
    )


def _helps(report: Report) -> bool:
    remedy = tried(report, "longer")
    return remedy is not None and remedy.verdict == "helps"


def _longer(report: Report) -> str:
    """What a longer training did to networks like it."""
    remedy = tried(report, "longer")
    if remedy is None:
        return " Networks trained anew for longer would say whether it could do better (`gen-audit twins`)."
    return f" {capital(came_of(report, remedy))}."


def _too_sure(report: Report, wrong: float) -> str:
    """A hint where the train loss is above what the same number of mistakes costs a model that knows how many it makes.

    Such a model gives its answer the probability 1 − wrong, and the others what is left, in equal parts.
    """
    bounds = report.gap.train_loss_ci95
    others = round(1 / chance(report)) - 1
    known = -sum(part * math.log(part / ways) for part, ways in ((1 - wrong, 1), (wrong, others)) if part > 0)
    weighed_alike = report.gap.train_positions is None  # not by position here and by sample there
    if bounds is None or bounds[0] <= known or not weighed_alike:
        return ""
    return (
        f" Its train loss of {number(report.gap.train_loss)} is above the {number(known)} of a model that is wrong as "
        "often and knows how often: too sure on its own train data, which suggests an input scaled otherwise than in "
        "training."
    )


def _regression(report: Report) -> Observation | None:
    train, test = report.gap.train_r2, report.gap.test_r2
    if train is None or test is None or train >= 1 - FITTED or 1 - train <= train - test:
        return None
    return Observation(
        level="watch" if train < MOSTLY else "note",
        title="Most of what goes wrong on test already goes wrong on train: consistent with an underfit",
        explanation=(
            f"The model explains {explained(train)} of the variance of its train targets and {explained(test)} on "
            "test: what it leaves unexplained on train is more than what test adds to it. Noise in the targets looks "
            "the same, and no model can explain that."
        ),
        advice="Try a larger model, a longer training or better features, and compare with how noisy the targets are.",
        evidence=("gap.train_r2", "gap.test_r2"),
    )


UNDERFIT = FindingRule(
    id="underfit",
    title="Underfit",
    meaning="Whether the model's mistakes are mostly made on the train samples already.",
    conditions=(
        f"note: train error e > {number(FITTED)} and above the upper end of the error gap's 95 % interval, with a hint "
        "at the input's scale where the train loss is above h(e) + e ln(C−1) beyond chance; regression: "
        f"1 − R²_train > R²_train − R²_test and R²_train < {number(1 - FITTED)}; watch: where e > {number(MOSTLY)}, "
        f"R²_train < {number(MOSTLY)}, or twins that were trained for longer do better on test"
    ),
    source="The split of the test error into train error and gap.",
    origin=(
        f"One half of the test error, a natural mark; {share(FITTED)} is what the source studies call fitted "
        "(interpolation)."
    ),
    cannot_tell="Whether a better fit is possible: with noisy labels or targets it is not.",
    find=find_underfit,
    rests_on=("gap",),
)


# Could the gap be a matter of too little data?


WORTHWHILE, WORTHWHILE_POINTS = 0.05, 0.02  # of the loss now, or of all answers: less gain is not worth a look


def find_few_train(report: Report) -> Observation | None:
    """From the learning curve of twins; else where the model fits train, fails more on test, and labels are fine."""
    if report.twins is not None and report.twins.curve is not None and report.twins.curve.change is not None:
        return _from_twins(report, report.twins.curve)
    if not (gap_is_real(report) and fits_train(report)) or labels_in_doubt(report):
        return None
    train, classes = report.data.train, report.data.classes or 0
    capped = f" ({number(train.samples)} of them used here)" if train.total > train.samples else ""
    each = f", about {number(round(train.total / classes))} a class," if classes and unit(report) == "sample" else ""
    return Observation(
        level="note",
        title="The model fits its train data and loses on new data: consistent with too little data",
        explanation=(
            f"{some(train.total, 'train sample')}{capped}{each} stand against "
            f"{some(report.model.parameters, 'parameter')}, and nothing here speaks against the labels."
            f"{_studied(report)} One model alone cannot show what more data would bring."
        ),
        advice=(
            "Train the same recipe on half of the train samples (`gen-audit twins` does): if the half then does "
            "clearly worse, more data is likely to pay."
        ),
        evidence=("data.train.samples", "data.train.total", "model.parameters", "gap.train_error", "gap.error_gap"),
    )


def _from_twins(report: Report, curve: Curve) -> Observation | None:
    """What twice the data would bring, off the learning curve."""
    change, now = curve.change or 0.0, curve.points[-1].test
    if curve.verdict != "helps":
        return None
    first, *_ = curve.points
    gain = f"{effect(report, change)}{within(curve.change_ci95, 'points' if _counted(report) else 'number')}"
    return Observation(
        level="watch" if _large(report, -change, now) else "note",
        title=f"More data like these would likely help: about {effect(report, change)} for twice as many",
        explanation=(
            f"Networks of this architecture have {level_of(report, first.test)} on test after training on "
            f"{some(first.train_samples, 'sample')}, and {level_of(report, now)} after "
            f"{number(curve.points[-1].train_samples)}. The curve, drawn on to twice as many, suggests {gain}."
        ),
        advice="Collect more samples of the same kind, those of the weakest class first.",
        evidence=("twins.curve.twice", "twins.curve.twice_ci95", "twins.curve.change", "twins.curve.change_ci95"),
    )


def _large(report: Report, gain: float, now: float) -> bool:
    """Whether a gain is more than chance alone moves this gap by, where the model fits what it was trained on.

    Twice the data help almost any model; that alone is no reason to look at this one.
    """
    gap, counted = report.gap, _counted(report)
    bounds = gap.error_gap_ci95 if counted else gap.loss_gap_ci95
    if bounds is None or not (fits_train(report) if counted else (gap.train_r2 or 0) >= 1 - FITTED):
        return False
    return gain >= (WORTHWHILE_POINTS if counted else WORTHWHILE * now) and gain > (bounds[1] - bounds[0]) / 2


def _counted(report: Report) -> bool:
    return report.model.task != "regression"


def _studied(report: Report) -> str:
    """What fewer samples did elsewhere: left out where this gap is not in those directions, or where is not known."""
    found = [] if "duality" in broken_blocks(report) else hidden_steep_shares(report)
    if not found or any(spread_out([part]) for part in found):
        return ""
    return (
        " In the 110 networks studied for this tool fewer samples doubled the part of the gap in the steepest "
        "directions."
    )


FEW_TRAIN = FindingRule(
    id="few-train-samples",
    title="Too little train data",
    meaning="Whether a gap could come from too few train samples, where nothing else in the report explains it.",
    conditions=(
        "with twins: watch: the model fits its train data, and twice the train samples would lower the test error "
        f"beyond chance, by {number(100 * WORTHWHILE_POINTS)} points or more and by more than half the width of the "
        f"error gap's 95 % interval (regression: {share(WORTHWHILE)} of the loss, the loss gap's); note: by less. "
        f"Without: note: error gap above zero beyond chance, train error ≤ {number(FITTED)}, and the labels not in "
        "doubt (see mislabelled)"
    ),
    source="With twins: their learning curve. Without: 110 networks on MNIST, 784-30-30-10, studied for this tool.",
    origin=(
        f"{NO_LIMIT} It says what the numbers do not speak against; from where on it is a watch is a convention. Of 20 "
        "forecasts from twins (MNIST with 10 and 5 digits, digits; samples/twin_rates.json) 18 held the mean error of "
        "networks that were then trained on twice as many samples, and 110 of these 120 networks lay inside one by "
        "one; the change that is quoted was held in 16 of 20. A part of its width was found on MNIST; of the 15 others "
        "13 held the mean."
    ),
    cannot_tell="Whether more data would help, without twins; with them, whether further data will be like these.",
    find=find_few_train,
    rests_on=("gap",),
)


# Are there enough test samples for the intervals to be believed?


ENOUGH = 30


def find_few_test(report: Report) -> Observation | None:
    """Speaks where the test split is very small."""
    samples = report.data.test.samples
    if samples >= ENOUGH:
        return None
    return Observation(
        level="watch",
        title=f"{some(samples, 'test sample is', 'test samples are')} too few to rely on",
        explanation=(
            f"With fewer than {ENOUGH} samples the 95 % intervals of mean losses come out too narrow: in a simulation "
            "with skewed losses they held the truth in 79 to 91 cases of 100 at that size, and less often below. One "
            "more or one fewer odd sample would change the picture."
        ),
        advice="Collect more test samples before you decide anything on this gap; some hundreds make a fair one.",
        evidence=("data.test.samples",),
    )


FEW_TEST = FindingRule(
    id="few-test-samples",
    title="Too few test samples",
    meaning="Whether the test split is so small that the report's own intervals are too narrow.",
    conditions=f"watch: fewer than {ENOUGH} test samples",
    source="Narrowness and skewness of the percentile bootstrap, Efron & Tibshirani (1993).",
    origin=(
        "Simulated with 1,000 draws each: at 30 samples 95 % intervals held the mean in 91 % (exponential losses) and "
        "79 % (log-normal, σ = 1.5) of the cases; at 10 in 87 % and 69 %, at 200 in 93 % and 88 %."
    ),
    find=find_few_test,
)
