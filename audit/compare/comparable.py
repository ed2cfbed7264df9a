"""May these reports be compared at all, and in which numbers? Refuses what would mean nothing, with a sentence.

The second derivative of a classifier's loss shrinks as its train loss does: over 4e-2 → 5e-5 the trace of the Hessian
falls a hundredfold while the gap doubles. So what is measured inside the network is compared at one train loss only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from audit.compare import OBSERVED, OF_NETWORK, ON_SAMPLES, Matched, Named, Number, of_layers, skipped, verdict
from audit.compare.differences import pair, same_samples
from audit.errors import UsageError
from audit.maths.intervals import mean_interval
from audit.maths.shares import difference_interval
from audit.measures import Report
from audit.measures.catalogue import CATALOGUE
from audit.report.blocks import Gallery
from audit.report.fields import Compared
from audit.report.numbers import number
from audit.report.paths import Found, find

CHANGE_NUMBERS = (
    *("partner_space", "conv", "directions", "subsets", "subset_size", "normalized_logits", "volume", "delta"),
    "precision",
)
"""Settings under which the numbers of a layer or of the network are other numbers."""
MATCHED = 0.05  # train losses that differ by at most this share count as equal
NETWORK = ("layers.", "network.")  # what was measured inside the network
BLOCKS = {entry.key for entry in CATALOGUE if entry.follows_train_loss}
WHATEVER_THE_SCALE = {"dimensionality", "mean_rank", "rank_deficient_samples", "degenerate_inputs", "units_active"}
"""Numbers of those blocks that stay the same when all scores are multiplied by one factor."""


def check_comparable(first: Named, others: Sequence[Named]) -> None:
    """Refuses reports of different tasks, or judged on different test samples."""
    for other in others:
        for name in ("task", "loss"):
            mine, theirs = getattr(first.report.model, name), getattr(other.report.model, name)
            if mine != theirs:
                raise UsageError(
                    f"{first.name} and {other.name}: cannot be compared, their {name} is {mine} and {theirs}; compare "
                    "models that do the same."
                )
        pairs = pair(first.report, other.report, "test")
        if pairs is not None and not pairs.enough:
            raise UsageError(
                f"{first.name} and {other.name}: share {len(pairs):,} of {pairs.kept:,} test samples, fewer than "
                "half; audit both with the same --test-samples and --seed."
            )
        if pairs is None and not same_samples(first.report, other.report, "test"):
            raise UsageError(
                f"{first.name} and {other.name}: were judged on different test samples, so no difference between them "
                "would mean anything; audit both on one data folder."
            )


def shares_split(old: Report, new: Report, split: str) -> bool:
    """Whether the two have enough samples of a split in common to be compared on."""
    pairs = pair(old, new, split)
    return pairs.enough if pairs is not None else same_samples(old, new, split)


def why_void(sides: Sequence[Named]) -> str | None:
    """Why a test split is no evidence about new data, in the words of the report that found it."""
    for side in sides:
        if side.report.hygiene is not None and side.report.hygiene.leaked.void:
            return f"{side.name}: {side.report.hygiene.leaked.why}"
    return None


def samples_notes(old: Report, new: Report) -> list[str]:
    """What a reader must know about the samples that a comparison rests on."""
    notes = []
    if not shares_split(old, new, "train"):
        notes.append(
            "The two were audited with different train samples. Only their performance on the test samples is "
            "compared; train loss, gaps and what was measured inside the network are not."
        )
    for split in ("test", "train"):
        pairs = pair(old, new, split)
        if pairs is not None and not pairs.whole:
            notes.append(f"{len(pairs):,} {split} samples are in both reports, of up to {pairs.in_use:,} in use.")
        if pairs is None and same_samples(old, new, split):
            notes.append(
                f"A report holds no outcomes of single {split} samples, so the intervals cannot pair them and are "
                "wider than need be; make it anew with `gen-audit report`."
            )
    if old.data.split_is_ours or new.data.split_is_ours:
        notes.append("gen-audit made this split itself: the models may have been trained on their test samples.")
    return notes


def architecture(report: Report) -> tuple[object, ...]:
    """What makes two networks the same but for their weights: size, and shape of every dense layer."""
    layers = tuple((layer.in_features, layer.out_features, layer.bias) for layer in report.layers)
    return report.model.parameters, layers, len(report.passed_by)


def short_names(first: str, second: str) -> tuple[str, str]:
    r"""Two paths by their last parts, as few as tell them apart.

    >>> short_names("runs/1/report.json", "runs/2/report.json"), short_names("old.onnx", "new.onnx")
    (('1/report.json', '2/report.json'), ('old.onnx', 'new.onnx'))
    """
    parts = [PurePosixPath(PureWindowsPath(path).as_posix()).parts for path in (first, second)]
    for count in range(1, max(map(len, parts)) + 1):
        names = tuple("/".join(path[-count:]) for path in parts)
        if names[0] != names[1]:
            return names[0], names[1]
    return first, second


# Which numbers follow the train loss, and are two reports at one? A classifier's curvature shrinks as its train loss
# does, and its scores, with all their slopes, grow: two such numbers say something about two models only at the same
# train loss. A squared error's curvature does not shrink with the loss.


def follows_train_loss(path: str) -> bool:
    """Whether the number at this path of a classifier's report moves with its train loss.

    >>> [follows_train_loss(f"network.sensitivity.{name}") for name in ("mls", "dimensionality")]
    [True, False]
    """
    parts = path.split(".")
    return path.startswith(NETWORK) and bool(BLOCKS & set(parts)) and parts[-1] not in WHATEVER_THE_SCALE


def at_one_train_loss(old: Report, new: Report) -> bool:
    """Whether numbers that follow the train loss may stand side by side; for regression they always may."""
    losses = old.gap.train_loss, new.gap.train_loss
    return new.model.task == "regression" or abs(losses[0] - losses[1]) <= MATCHED * max(losses)


# The numbers from inside the two networks, side by side.


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
