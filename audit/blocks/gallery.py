"""The samples that the report shows: small pictures, or the features in which two samples differ most."""

from __future__ import annotations

from dataclasses import dataclass

from audit.fields import says

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
