"""Numbers measured inside the network: compared at one train loss only, since they follow it.

The second derivative of a classifier's loss shrinks as its train loss does: over 4e-2 → 5e-5 the trace of the Hessian
falls a hundredfold while the gap doubles. Two such numbers say something about two models only at the same train loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from audit.compare.catalogue import INSIDE, Entry, skipped, split_entry, verdict
from audit.compare.ground import shares_split
from audit.compare.means import difference_interval
from audit.compare.pairs import same_samples
from audit.compare.result import Matched, Number
from audit.numbers import number
from audit.policy.baseline import CHANGE_NUMBERS, MATCHED
from audit.policy.lookup import Found, find
from audit.report import Report


def inside_numbers(
    old: Report, new: Report, at_one_loss: tuple[Report, Report, Matched] | None
) -> tuple[list[Number], Matched | None, list[str]]:
    """The numbers, how they were matched, and a sentence about it."""
    if not shares_split(old, new, "train"):
        return [], None, []
    if at_one_loss is not None:
        first, second, matched = at_one_loss
        return _compared(first, second, matched), matched, [_matched_words(matched)]
    losses = old.gap.train_loss, new.gap.train_loss
    if old.model.task == "regression":
        return _compared(old, new, None), None, [REGRESSION]
    if abs(losses[0] - losses[1]) <= MATCHED * max(losses):
        return _compared(old, new, None), None, [_agree_words(*losses)]
    why = (
        f"not compared: it follows the train loss, and these differ ({number(losses[0])} and {number(losses[1])}); "
        "give the two models and the data to have them compared at one train loss"
    )
    return [skipped(entry, why) for entry in entries(old, new)], None, []


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


def entries(old: Report, new: Report) -> list[Entry]:
    """What both reports can have: the network's numbers, and the split of every layer that is in both."""
    names = {layer.name for layer in old.layers if layer.duality is not None}
    shared = [layer.name for layer in new.layers if layer.duality is not None and layer.name in names]
    return [*INSIDE, *(split_entry(name) for name in shared)]


def _compared(old: Report, new: Report, matched: Matched | None) -> list[Number]:
    documents = old.to_dict(), new.to_dict()
    numbers = []
    for entry in entries(old, new):
        found = [find(entry.key, document)[0] for document in documents]
        if all(part.missing for part in found):
            continue  # neither report has it: regression has no Fisher block
        why = _other_settings(old, new) or _missing(found)
        numbers.append(skipped(entry, why) if why else _number(entry, found, matched, same_samples(old, new, "train")))
    return numbers


def _other_settings(old: Report, new: Report) -> str | None:
    if not same_samples(old, new, "train"):
        return "not compared: the two reports used different train samples"
    for name in CHANGE_NUMBERS:
        before, after = old.settings.get(name), new.settings.get(name)
        if before != after:
            return f"not compared: {name} is {before} in one report and {after} in the other"
    return None


def _missing(found: Sequence[Found]) -> str | None:
    return next((f"not measured in one of them: {part.missing}" for part in found if part.missing), None)


def _number(entry: Entry, found: Sequence[Found], matched: Matched | None, same: bool) -> Number:
    before, after = (float(part.value) for part in found)
    ci95 = difference_interval(after, before, found[1].interval, found[0].interval)
    return replace(
        skipped(entry),
        old=before,
        new=after,
        difference=after - before,
        ci95=ci95,
        verdict=verdict(entry, after - before, ci95, identical=same and before == after),
        matched=matched is not None,
    )
