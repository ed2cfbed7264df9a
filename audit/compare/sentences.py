"""A comparison in sentences: what a reader without statistics takes away, and what must not be read into it."""

from __future__ import annotations

from collections.abc import Sequence

from audit.compare import BETTER, NO_INTERVAL, SAME, UNKNOWN, WORSE, Number
from audit.maths.intervals import student_quantile
from audit.measures import Report
from audit.report.numbers import interval, number, percent, points, signed

NAMES = {"gap.test_error": "test error", "gap.test_loss": "test loss"}


def headline(primary: Number, loss: Number, void: str | None, alone: tuple[int, int] | None, new: Report) -> list[str]:
    """The verdict about two models; `loss` is the number of the test loss."""
    if void is not None:
        record = [] if primary.difference is None else [f"For the record: {_measured(primary)}."]
        return [f"No verdict: the test split is void. {void}", *record]
    if primary.difference is None:
        return [_missing(primary)]
    partly = primary.in_use is not None and primary.in_use != primary.samples
    where = "the samples that both reports have" if partly else "this test set"
    first = {
        WORSE: f"The new model is worse than the old one on {where}",
        BETTER: f"The new model is better than the old one on {where}",
        SAME: f"Both models have the same {NAMES[primary.key]} on every sample of this test set",
    }.get(primary.verdict, "These test samples cannot tell which of the two models is better")
    sentences = [f"{first}: {_measured(primary)}{_reading(primary)}."]
    if alone is not None and primary.verdict != SAME:
        sentences.append(_disagreement(*alone))
    if primary.key != loss.key and loss.verdict in (BETTER, WORSE) and loss.verdict != primary.verdict:
        sentences.append(_beside(loss))
    if new.model.task == "regression" and primary.old is not None and primary.new is not None:
        rmse = [(2 * value / new.model.outputs) ** 0.5 for value in (primary.old, primary.new)]
        sentences.append(f"As root mean squared error: {number(rmse[0])} before, {number(rmse[1])} now.")
    return [*sentences, *_beside_twins(primary, new)]


def _beside_twins(primary: Number, new: Report) -> list[str]:
    """Whether two models of one training would differ as much: off the new one's plain twins, where it has some."""
    band = None if new.twins is None or primary.difference is None else new.twins.test
    if band is None or len(band.values) < 2:
        return []
    mean = sum(band.values) / len(band.values)
    variance = sum((value - mean) ** 2 for value in band.values) / (len(band.values) - 1)
    usual = student_quantile(len(band.values) - 1) * (2 * variance) ** 0.5
    size = points(usual).lstrip("+") if primary.kind == "percent" else number(usual)
    more = abs(primary.difference or 0.0) > usual
    told = "more than that" if more else "no more than chance in training explains"
    return [f"Two networks trained alike differ by up to {size} here, in 95 of 100 cases; these two by {told}."]


def _missing(primary: Number) -> str:
    """Where the one number that the verdict rests on is not there."""
    why = primary.skipped or "it was not measured on both sides"
    return f"No verdict: the {NAMES[primary.key]} cannot be compared ({why.removeprefix('not compared: ')})."


def _measured(primary: Number) -> str:
    """Both values and their difference."""
    on = f"on {whose_samples(primary)}"
    if primary.kind == "percent":
        return (
            f"{on} the old one answers wrongly on {percent(primary.old)}, the new one on {percent(primary.new)}, a "
            f"difference of {points(primary.difference)}{within(primary)}"
        )
    return (
        f"{on} the mean loss of the old one is {number(primary.old)}, of the new one {number(primary.new)}, a "
        f"difference of {difference(primary)}{within(primary)}"
    )


def whose_samples(told: Number) -> str:
    """Which samples a number of both sides rests on."""
    if told.samples is None:
        return "the same samples"
    if told.in_use is None or told.in_use == told.samples:
        return f"the same {number(told.samples)} samples"
    return f"the {number(told.samples)} of {number(told.in_use)} samples that both reports have"


def _reading(primary: Number) -> str:
    return {UNKNOWN: "; the interval includes zero", NO_INTERVAL: "; there is no interval"}.get(primary.verdict, "")


def _disagreement(only_old: int, only_new: int) -> str:
    return (
        f"They differ in being right on {number(only_old + only_new)} samples: {number(only_new)} that only the new "
        f"one gets wrong, {number(only_old)} that only the old one does."
    )


def _beside(loss: Number) -> str:
    """The test loss where it tells another story than the test error."""
    side = "higher" if loss.verdict == WORSE else "lower"
    fits = "worse" if loss.verdict == WORSE else "better"
    return (
        f"Not part of the verdict: the mean test loss of the new one is {side}, by {difference(loss)}{within(loss)}; "
        f"its probabilities fit these samples {fits}."
    )


def recipes_headline(primary: Number, void: str | None, old: int, new: int) -> list[str]:
    """The verdict about two recipes with several seeds each."""
    if void is not None:
        return [f"No verdict: the test split is void. {void}"]
    if primary.difference is None:
        return [_missing(primary)]
    first = {
        WORSE: "Models of the new recipe are worse than those of the old one",
        BETTER: "Models of the new recipe are better than those of the old one",
        SAME: "Models of both recipes do the same on every sample",
    }.get(primary.verdict, "These seeds and samples cannot tell which of the two recipes is better")
    show = percent if primary.kind == "percent" else number
    apart = points(primary.difference) if primary.kind == "percent" else difference(primary)
    sentences = [
        f"{first}: over {old} seeds of the old and {new} of the new recipe the mean {NAMES[primary.key]} is "
        f"{show(primary.old)} and {show(primary.new)}, a difference of {apart}{within(primary)}{_reading(primary)}."
    ]
    if primary.seeds_share is not None:
        sentences.append(
            f"{primary.seeds_share:.0%} of the uncertainty comes from the seeds, the rest from the samples."
        )
    return sentences


def within(told: Number) -> str:
    """The interval of the difference in brackets."""
    if told.ci95 is None:
        return ""
    if told.kind == "percent":
        return f" (95 % interval {interval(told.ci95, 'points')})"
    return f" (95 % interval {' to '.join(with_sign(end) for end in told.ci95)})"


def difference(told: Number) -> str:
    """New minus old, with its sign."""
    if told.difference is None:
        return number(None)
    if told.kind in ("percent", "share"):
        return points(told.difference) if told.kind == "percent" else f"{signed(100 * told.difference, 0)} points"
    return with_sign(told.difference)


def with_sign(value: float) -> str:
    """Three digits and a sign.

    >>> with_sign(0.1234), with_sign(-2.0), with_sign(0.0)
    ('+0.123', '−2', '0')
    """
    return f"+{number(value)}" if value > 0 else number(value)


def primary_note(primary: Number, about: str) -> str:
    """What the verdict is about, and what not."""
    rest = f"The verdict rests on one number that was fixed beforehand, the {NAMES[primary.key]}. "
    if about == "recipes":
        return rest + "It speaks of the recipes: the spread between seeds is in the interval."
    return rest + (
        "It speaks of these two models on these test samples. The same recipe with another seed gives another model; "
        "to compare recipes, give several seeds of each with --group."
    )


def family_note(numbers: Sequence[Number], primary: str) -> str:
    """How to read many intervals at once."""
    others = sum(told.key != primary and told.ci95 is not None for told in numbers)
    return (
        f"Every other interval ({others} of them) is a 95 % interval by itself; among many, some exclude zero by "
        "chance. They describe the two sides and are no verdicts. Lower and higher are not better and worse: only test "
        "error and test loss have a good side."
    )
