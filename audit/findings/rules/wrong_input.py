"""Is the model fed what it was trained on?"""

from __future__ import annotations

from audit.findings.conditions import balanced_train_accuracy, chance, fed_otherwise, guesses
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import asked, explained, scores
from audit.measures.report import Report
from audit.report.numbers import percent, share


def find(report: Report) -> Observation | None:
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


RULE = FindingRule(
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
    find=find,
)
