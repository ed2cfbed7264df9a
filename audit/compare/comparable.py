"""May these reports be compared at all, and in which numbers? Refuses what would mean nothing, with a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from audit.compare.differences import pair, same_samples
from audit.errors import UsageError
from audit.measures.catalogue import CATALOGUE
from audit.measures.report import Report

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


@dataclass(frozen=True)
class Named:
    """A report and the path it is known by."""

    name: str
    report: Report


def check_comparable(first: Named, others: Sequence[Named]) -> None:
    """Refuses reports of different tasks, or judged on different test samples."""
    for other in others:
        for field in ("task", "loss"):
            mine, theirs = getattr(first.report.model, field), getattr(other.report.model, field)
            if mine != theirs:
                raise UsageError(
                    f"{first.name} and {other.name}: cannot be compared, their {field} is {mine} and {theirs}; compare "
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
