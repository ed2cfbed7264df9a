"""Is the model better than a constant answer, on train and on test?"""

from __future__ import annotations

import math

from audit.findings.rule import (
    FindingRule,
    Observation,
    asked,
    balanced_train_accuracy,
    below_zero,
    chance,
    explained,
    fed_otherwise,
    guesses,
    guesses_on_test,
    scores,
    unit,
    within,
)
from audit.measures import Report
from audit.report.fields import Interval
from audit.report.numbers import number, percent, share

# Is the model fed what it was trained on?


def find_wrong_input(report: Report) -> Observation | None:
    """Speaks where the model cannot answer its own train data."""
    if not guesses(report) or fed_otherwise(report):
        return None
    if report.model.task == "regression":
        seen = f"It explains {explained(report.gap.train_r2)} of the variance of the targets it was trained on."
        otherwise = (
            "scale or order of features than in training, a model that gives one answer whatever it is fed, or one "
            "that was never trained"
        )
        settings = "--scale, --mean, --std or --channels"
    else:
        seen = (
            f"It is right on {percent(report.gap.train_accuracy)} of the {asked(report, 'train')} "
            f"and, as a mean over the classes, on {percent(balanced_train_accuracy(report))}, where any guess "
            f"gives {share(chance(report))}."
        )
        otherwise = (
            "scale, order of channels or order of classes than in training, a model that answers one class only, as "
            "it may where one is by far the largest, or one that was never trained"
        )
        settings = "--scale, --mean, --std, --channels or --classes"
    return Observation(
        level="concern",
        title="The model is probably not fed what it was trained on",
        explanation=(
            f"{seen}{_constant(report)} A model that was trained on these samples does better than that, so this "
            f"suggests another {otherwise}. Until that is settled no other number here is about your model as you use "
            "it."
        ),
        advice=(
            f"Set {settings} as in training, and check that the folder is the data that this model was trained on; "
            "then run the audit again."
        ),
        evidence=("gap.train_error", "gap.train_accuracy", "gap.train_r2", "data.classes", "data.train.samples"),
    )


def _constant(report: Report) -> str:
    """Said where the model does not react to its input at all, or has but one answer."""
    sensitivity, mistakes = report.network.sensitivity, report.gap.confusion
    if sensitivity is not None and sensitivity.mls == 0:
        moved = "it" if report.model.outputs == 1 else "them"
        return f" It gives the same {scores(report)} to every input: no small change of a train sample moves {moved}."
    if mistakes is None or not mistakes.counts:
        return ""
    given = [place for place, column in enumerate(zip(*mistakes.counts, strict=False)) if any(column)]
    return " It gives the same answer to every test sample." if len(given) == 1 else ""


WRONG_INPUT = FindingRule(
    id="wrong-input",
    title="Wrong input",
    meaning="Whether the model does better than guessing on the very data that it was trained on.",
    conditions=(
        "concern: mean over classes of the share of train samples answered rightly ≤ 1/C + 3 standard errors of a "
        "guesser, or + a quarter of the way from 1/C to 1 where that is less; regression: train R² ≤ 0; not where "
        "preprocessing or class-order know the cause"
    ),
    source="Counting; the balanced accuracy of any guess is 1/C.",
    origin="Three standard errors: about one guesser in 700 does better by luck. A quarter of the way is a convention.",
    cannot_tell="A wrong scale that hurts only a little, or a model that really learnt nothing.",
    find=find_wrong_input,
)


# Would a constant answer have done better on the test samples?


def find_worse_than_guessing(report: Report) -> Observation | None:
    """Speaks where knowing nothing would have cost less."""
    return _worse_quantities(report) if report.model.task == "regression" else _worse_answers(report)


def _worse_answers(report: Report) -> Observation | None:
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


def _worse_quantities(report: Report) -> Observation | None:
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


WORSE_THAN_GUESSING = FindingRule(
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
    find=find_worse_than_guessing,
    rests_on=("gap",),
)


# Is the model hardly better than always giving the commonest answer?


FEW = 0.2  # of the mistakes of the constant answer that the model avoids


def find_hardly_better(report: Report) -> Observation | None:
    """Speaks where there is little skill, and worse-than-guessing does not already say that there is none."""
    return _hardly_better_quantities(report) if report.model.task == "regression" else _hardly_better_answers(report)


def _hardly_better_answers(report: Report) -> Observation | None:
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


def _hardly_better_quantities(report: Report) -> Observation | None:
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


HARDLY_BETTER = FindingRule(
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
    find=find_hardly_better,
    rests_on=("gap",),
)
