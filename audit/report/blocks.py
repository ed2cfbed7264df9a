"""What the report says about the self-checks and assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from audit.report.fields import says

CHECK_IDS = (
    *("duality-exact", "decomposition-closes", "basis-orthonormal", "bounds-hold"),
    *("rescaling-layers", "rescaling-neurons", "hessian-probe", "determinism", "single-precision"),
    *("piecewise-linear", "interpolation", "gradient-small", "gram-full-rank"),
)
"""Every check and assumption that an audit can make."""
PARITY = "parity"  # told like a self-check, though the report keeps it with the model


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was tried on the audited model itself, or one assumption that was looked at."""

    id: str
    kind: str = says(
        "check: a number is not to be trusted where it failed; assumption: the theory is not about this model"
    )
    title: str
    status: str = says("passed, failed or skipped")
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


def skipped(id: str, title: str, why: str, affects: list[str], kind: str = "check") -> Check:
    """A check that could not be made here, and why."""
    return Check(id=id, kind=kind, title=title, status="skipped", explanation=why, affects=affects)


# The samples that the report shows: small pictures, or the features in which two samples differ most.


PAIRS = 8  # costliest pairs that are shown
SUSPECTS = 8  # suspect labels that are shown
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
    """The features in which a test sample and its train partner differ most, largest difference first."""

    index: int = says("position in the test split as stored")
    partner: int = says("position in the train split as stored")
    features: list[FeatureDifference]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Samples named elsewhere in the report, to look at: each picture is here once."""

    thumbnails: list[Thumbnail] = says("of the costliest pairs and of suspect labels with neighbours")
    pairs: list[PairFeatures] = says("of the costliest pairs, where samples are rows of features")
    about: str | None = says("what the pictures or the features show", default=None)
    skipped: str | None = says("why there is nothing to look at", default=None)


# What the model did on each sample, kept so that two reports can be compared sample by sample. Not on the page.


@dataclass(frozen=True, kw_only=True)
class SplitOutcomes:
    """One split, in the order of its positions."""

    sha256: str = says("of the samples and labels in use, as read: equal in two reports that judged the same samples")
    samples: int = says("samples in use; where there are more than positions, a fixed draw of them is kept")
    positions: list[int] = says("in the split as stored, ascending")
    loss: list[float] = says("loss of each sample; for regression half its squared error")
    wrong: list[int] | None = says("1 where the answer is wrong, else 0; null for regression", default=None)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Both splits."""

    train: SplitOutcomes
    test: SplitOutcomes


# Past audits of the same architecture on the same data, to see a new one beside them.


@dataclass(frozen=True, kw_only=True)
class ReferenceNumber:
    """Where one number lay in past audits."""

    key: str = says("its path in report.json")
    name: str
    kind: str = says("how it is shown: number, percent or share")
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
