"""What the report says beside the measures' blocks: self-checks, samples to look at, outcomes, past audits."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from audit.report.fields import Kind, says

CHECK_IDS = (
    *("duality-exact", "decomposition-closes", "basis-orthonormal", "bounds-hold"),
    *("rescaling-layers", "rescaling-neurons", "hessian-probe", "determinism", "single-precision"),
    *("piecewise-linear", "interpolation", "gradient-small", "gram-full-rank"),
)
"""Every check and assumption that an audit can make."""
CheckKind = Literal["check", "assumption"]
CheckStatus = Literal["passed", "failed", "skipped"]
PARITY = "parity"  # told like a self-check, though the report keeps it with the model


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was tried on the audited model itself, or one assumption that was looked at."""

    id: str
    kind: CheckKind = says(
        "check: a number is not to be trusted where it failed; assumption: the theory is not about this model"
    )
    title: str
    status: CheckStatus = says("passed, failed or skipped")
    value: float | None = says("what was measured", default=None)
    tolerance: float | None = says("what it was held against", default=None)
    explanation: str
    affects: list[str] = says("blocks of the report that rest on it", default_factory=list)


def worst(id: str, title: str, value: float, tolerance: float, explanation: str, affects: list[str]) -> Check:
    """A check that passes where `value` is at most `tolerance`; a value that is no number fails."""
    if not math.isfinite(value):
        explanation = f"{explanation} It came out as no finite number."
    return Check(
        id=id,
        kind="check",
        title=title,
        status="passed" if value <= tolerance else "failed",
        value=float(value) if math.isfinite(value) else None,
        tolerance=float(tolerance),
        explanation=explanation,
        affects=affects,
    )


def skipped(id: str, title: str, why: str, affects: list[str], kind: CheckKind = "check") -> Check:
    """A check that could not be made here, and why."""
    return Check(id=id, kind=kind, title=title, status="skipped", explanation=why, affects=affects)


# The samples that the report shows: small pictures, or the features in which two samples differ most.


PAIRS = 8  # costliest pairs that are shown
SUSPECTS = 8  # suspect labels that are shown
COSTLIEST, CLOSEST = 8, 24  # test samples that a later comparison is most likely to show
NEIGHBOURS = 3  # of each of them


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """One sample as a small picture."""

    split: str = says("train or test")
    index: int = says("position in the split as stored")
    width: int
    height: int
    png: str = says("the PNG file, base64")


@dataclass(frozen=True, kw_only=True)
class FeatureDifference:
    """One feature of a test sample and of its train partner, as fed to the model."""

    name: str
    test: float
    partner: float
    deviations: float | None = says("their difference over the feature's deviation in train; null where it is constant")


@dataclass(frozen=True, kw_only=True)
class PairFeatures:
    """The features in which a test sample and its train partner differ most, largest first; none that are equal."""

    index: int = says("position in the test split as stored")
    partner: int = says("position in the train split as stored")
    features: list[FeatureDifference]


@dataclass(frozen=True, kw_only=True)
class FeatureValue:
    """One feature of a sample, as fed to the model."""

    name: str
    value: float
    deviations: float | None = says("from the train mean, over the deviation in train; null where it is constant")


@dataclass(frozen=True, kw_only=True)
class SampleFeatures:
    """The features in which a test sample is farthest from the train mean, farthest first."""

    index: int = says("position in the test split as stored")
    features: list[FeatureValue]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Samples named elsewhere in the report, to look at: each picture is here once."""

    thumbnails: list[Thumbnail] = says(
        "of the costliest pairs, of suspect labels with neighbours, and of test samples that cost most or were "
        "closest to another answer"
    )
    pairs: list[PairFeatures] = says("of the costliest pairs, where samples are rows of features")
    rows: list[SampleFeatures] = says(
        "of test samples that cost most or were closest to another answer, where samples are rows", default_factory=list
    )
    about: str | None = says("what the pictures or the features show", default=None)
    skipped: str | None = says("why there is nothing to look at", default=None)


PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_SIDE = 256  # pixels of a picture; those that an audit makes have 40
LARGEST_PICTURE = 2**19  # letters of its base64


def gallery_faults(gallery: Gallery) -> Iterator[str]:
    """Pictures that are none, or not of the size that the report says: their header tells, before any is decoded."""
    for place, picture in enumerate(gallery.thumbnails):
        if not _is_small_png(picture):
            yield f"gallery.thumbnails[{place}] is no small PNG of {picture.width} × {picture.height} pixels"


def _is_small_png(picture: Thumbnail) -> bool:
    if not (0 < picture.width <= LARGEST_SIDE and 0 < picture.height <= LARGEST_SIDE):
        return False
    try:
        content = base64.b64decode(picture.png[: LARGEST_PICTURE + 1], validate=True)
    except ValueError:
        return False
    sides = picture.width.to_bytes(4, "big") + picture.height.to_bytes(4, "big")
    return len(picture.png) <= LARGEST_PICTURE and content.startswith(PNG) and content[12:24] == b"IHDR" + sides


# What the model did on each sample, kept so that two reports can be compared sample by sample. Not on the page.

LARGEST_LOSS = 1e150  # its square is still a number


@dataclass(frozen=True, kw_only=True)
class SplitOutcomes:
    """One split, in the order of its positions."""

    sha256: str = says("of the samples and labels in use, as read: equal in two reports that judged the same samples")
    samples: int = says("samples in use; where there are more than positions, a fixed draw of them is kept")
    positions: list[int] = says("in the split as stored, ascending", min_length=1)
    loss: list[float] = says("loss of each sample; for regression half its squared error")
    wrong: list[int] | None = says("1 where the answer is wrong, else 0; null for regression", default=None)
    answers: list[int] | None = says(
        "labelled positions of each sample, of which `wrong` are answered wrongly; null: one answer each", default=None
    )


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Both splits."""

    train: SplitOutcomes
    test: SplitOutcomes


def outcomes_faults(outcomes: Outcomes, task: str) -> Iterator[str]:
    """What is wrong with outcomes that have every field, each with its path."""
    for name in ("train", "test"):
        split: SplitOutcomes = getattr(outcomes, name)
        places, kept = split.positions, len(split.positions)
        if split.wrong is None and task != "regression":
            yield f"outcomes.{name}.wrong is null, though the task is {task}"
        if not kept == len(split.loss) == (kept if split.wrong is None else len(split.wrong)):
            yield f"outcomes.{name}: positions, loss and wrong are not of one length"
        if any(later <= earlier for earlier, later in zip((-1, *places), places, strict=False)) or kept > split.samples:
            yield f"outcomes.{name}.positions are not those of different samples, in ascending order"
        if places and places[-1] >= 2**63:
            yield f"outcomes.{name}.positions: no split has {places[-1]} samples"
        if any(abs(loss) > LARGEST_LOSS for loss in split.loss):
            yield f"outcomes.{name}.loss is too large to be one"
        yield from _answer_faults(split, name)


def _answer_faults(split: SplitOutcomes, name: str) -> Iterator[str]:
    """Every sample has an answer, and no more wrong ones than answers."""
    if split.wrong is None:
        return
    if split.answers is None:
        if not {*split.wrong} <= {0, 1}:
            yield f"outcomes.{name}.wrong holds something other than 0 and 1"
    elif len(split.answers) != len(split.wrong):
        yield f"outcomes.{name}: wrong and answers are not of one length"
    elif not all(0 <= wrong <= answers and answers for wrong, answers in zip(split.wrong, split.answers, strict=True)):
        yield f"outcomes.{name}.wrong holds more wrong answers than a sample has answers"


# Past audits of the same architecture on the same data, to see a new one beside them.


@dataclass(frozen=True, kw_only=True)
class ReferenceNumber:
    """Where one number lay in past audits."""

    key: str = says("its path in report.json")
    name: str
    kind: Kind = says("how it is shown: number, percent or share")
    value: float = says("in this audit")
    low: float
    median: float
    high: float
    reports: int = says("past audits behind it; those of numbers that follow the train loss have this audit's, ± 5 %")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The band of past audits. A description: the past models need not have been good ones."""

    folder: str
    reports: int = says("past audits of other models with this architecture, on these data")
    passed_over: int = says("reports in the folder that are none")
    numbers: list[ReferenceNumber] = field(default_factory=list)
    skipped: str | None = says("why there is no band", default=None)
