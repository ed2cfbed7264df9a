"""Numbers measured inside the network: compared at one train loss only, since they follow it.

The second derivative of a classifier's loss shrinks as its train loss does: over 4e-2 → 5e-5 the trace of the Hessian
falls a hundredfold while the gap doubles. Two such numbers say something about two models only at the same train loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from audit.compare.comparable import (
    CHANGE_NUMBERS,
    MATCHED,
    architecture,
    at_one_train_loss,
    follows_train_loss,
    shares_split,
)
from audit.compare.differences import same_samples
from audit.compare.result import OBSERVED, OF_NETWORK, ON_SAMPLES, Matched, Number, of_layers, skipped, verdict
from audit.maths.intervals import mean_interval
from audit.maths.shares import difference_interval
from audit.measures.report import Report
from audit.report.blocks import Gallery
from audit.report.fields import Compared
from audit.report.numbers import number
from audit.report.paths import Found, find


@dataclass(frozen=True)
class Measured:
    """One side as it was measured for the comparison: at its own train loss, or softened to a common one."""

    report: Report
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # addends [n] of a number, by its path
    shown: Gallery | None = None  # test samples that changed most


@dataclass(frozen=True)
class AtOneLoss:
    """Both sides at one train loss."""

    old: Measured
    new: Measured
    matched: Matched | None  # None for regression, where nothing needs matching


def network_numbers(
    old: Report, new: Report, at_one_loss: AtOneLoss | None
) -> tuple[list[Number], Matched | None, list[str]]:
    """The numbers, how they were matched, and a sentence about it."""
    if not shares_split(old, new, "train"):
        return [], None, []
    if at_one_loss is not None:
        matched = at_one_loss.matched
        words = REGRESSION if matched is None else _matched_words(matched)
        return _compared(at_one_loss.old, at_one_loss.new, matched), matched, [words]
    losses = old.gap.train_loss, new.gap.train_loss
    numbers = _compared(Measured(old), Measured(new), None)
    if at_one_train_loss(old, new):
        return numbers, None, [REGRESSION if old.model.task == "regression" else _agree_words(*losses)]
    why = (
        f"not compared: it follows the train loss, and these differ ({number(losses[0])} and {number(losses[1])}); "
        "give the two models and the data to have them compared at one train loss"
    )
    follow = {entry.key: entry for entry in entries(old, new) if follows_train_loss(entry.key)}
    return [skipped(follow[told.key], why) if told.key in follow else told for told in numbers], None, []


REGRESSION = (
    "Numbers from inside the network are compared as they are: the curvature of a squared error does not shrink with "
    "the train loss."
)


def _agree_words(first: float, second: float) -> str:
    return (
        f"The train losses agree within {MATCHED:.0%} ({number(first)} and {number(second)}), so numbers that follow "
        "the train loss are compared as they are."
    )


def _matched_words(matched: Matched) -> str:
    if matched.scaled is None:
        return f"Both models have the train loss {number(matched.target)}; nothing had to be matched."
    return (
        f"Numbers from inside the network are compared at one train loss, {number(matched.target)}: the scores of the "
        f"{matched.scaled} model were multiplied by {number(matched.factor)}, which changes none of its answers, and "
        "everything was measured anew."
    )


def entries(old: Report, new: Report) -> list[Compared]:
    """What both reports can have: the network's numbers, and the split of every layer that is in both."""
    names = {layer.name for layer in old.layers if layer.duality is not None}
    shared = [layer.name for layer in new.layers if layer.duality is not None and layer.name in names]
    return [*OF_NETWORK, *of_layers(shared)]


def _compared(old: Measured, new: Measured, matched: Matched | None) -> list[Number]:
    numbers = []
    for entry in entries(old.report, new.report):
        found = [find(entry.key, side.report)[0] for side in (old, new)]
        if all(part.missing for part in found):
            continue  # neither report has it: a regression has no robustness
        why = _other_settings(old.report, new.report) or _other_layers(entry, old.report, new.report) or _missing(found)
        if why is not None:
            numbers.append(skipped(entry, why))
            continue
        addends = new.columns[entry.key] - old.columns[entry.key] if entry.key in old.columns else None
        numbers.append(replace(_number(entry, found, addends), matched=matched is not None))
    return numbers


def unpaired_numbers(old: Report, new: Report) -> list[Number]:
    """Numbers of the test samples that cannot be paired on each: by both intervals, as if these were independent."""
    numbers = []
    for entry in (entry for entry in ON_SAMPLES if entry not in OBSERVED):
        found = [find(entry.key, report)[0] for report in (old, new)]
        if all(part.missing for part in found):
            continue
        other = None if same_samples(old, new, "test") else "not compared: the two reports used different test samples"
        why = other or _missing(found)
        numbers.append(skipped(entry, why) if why is not None else _number(entry, found, None))
    return numbers


def _other_settings(old: Report, new: Report) -> str | None:
    if not same_samples(old, new, "train"):
        return "not compared: the two reports used different train samples"
    if old.plan.quick != new.plan.quick:
        return "not compared: one of the two reports was made with --quick, which measures the last dense layer only"
    for name in CHANGE_NUMBERS:
        before, after = old.settings.get(name), new.settings.get(name)
        if before != after:
            return f"not compared: {name} is {before} in one report and {after} in the other"
    return None


def _other_layers(entry: Compared, old: Report, new: Report) -> str | None:
    if not entry.of_weights or architecture(old) == architecture(new):
        return None
    return "not compared: it runs over layers and weights, and the two networks have different ones"


def _missing(found: Sequence[Found]) -> str | None:
    return next((f"not measured in one of them: {part.missing}" for part in found if part.missing), None)


def _number(entry: Compared, found: Sequence[Found], addends: NDArray[np.float64] | None) -> Number:
    """With the addends of the difference [n] paired on each sample, else from both intervals as if independent."""
    before, after = (float(part.value) for part in found)
    independent = difference_interval(after, before, found[1].interval, found[0].interval)
    ci95 = independent if addends is None else mean_interval(addends)
    return replace(
        skipped(entry),
        old=before,
        new=after,
        difference=after - before,
        ci95=ci95,
        samples=None if addends is None else len(addends),
        paired=addends is not None,
        verdict=verdict(entry, after - before, ci95, identical=before == after),
    )
