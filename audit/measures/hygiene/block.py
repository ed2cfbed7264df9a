"""What the report says about the data themselves."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.fields import Interval, says


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A test sample that is also in train."""

    train: int = says("position in the train split as stored")
    test: int = says("position in the test split as stored")
    same_label: bool


@dataclass(frozen=True, kw_only=True)
class NearTwin:
    """A test sample that is almost a train sample."""

    train: int = says("position in the train split as stored")
    test: int = says("position in the test split as stored")
    same_label: bool
    distance: float
    ratio: float = says("distance to the nearest train sample over that to the tenth-nearest different one")


@dataclass(frozen=True, kw_only=True)
class NearDuplicates:
    """Test samples far closer to one train sample than chance would bring them."""

    space: str | None = says("where distances are taken: input (as fed), or standardised input", default=None)
    dimension: float | None = says(
        "dimension that the samples locally fill; null where all distances are equal", default=None
    )
    dimension_std: float | None = says("standard error over test samples", default=None)
    threshold: float | None = says("ratio below which a test sample is a near duplicate", default=None)
    within_train: float | None = says(
        "share of train samples with such a twin within train: how common they are in these data anyway; null where "
        "test has none",
        default=None,
    )
    within_train_ci95: Interval = says("a Wilson interval", default=None)
    pairs: list[NearTwin] = says("the closest ones", default_factory=list)
    skipped: str | None = says("why near duplicates were not looked for", default=None)


@dataclass(frozen=True, kw_only=True)
class Conflicts:
    """Identical inputs with different labels."""

    within_train: int = says("train samples whose input is in train again with another label")
    across_splits: int = says("test samples whose input is in train with another label")
    train: list[int] = says("positions of the first of those train samples")
    test: list[int] = says("positions of the first of those test samples")


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A train sample beside another."""

    index: int = says("position in the train split as stored")
    label: str = says("the label it was given")


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A train sample whose label is probably wrong."""

    index: int = says("position in the train split as stored")
    label: str = says("the label it was given")
    neighbours_label: str = says("the label that most of its neighbours have")
    agreement: float = says("share of the neighbours that have that label")
    own: float = says("share of the neighbours that have the given label")
    neighbours: list[Neighbour] = says("the nearest of them, nearest first", default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SpaceTried:
    """A space that neighbours were looked for in."""

    name: str = says("input (as fed), standardised input, or features: what the last dense layer is fed")
    agreement: float | None = says(
        "share of test labels that win the vote of their train neighbours, a tie counting half; null for none"
    )
    agreement_ci95: Interval = says("a Wilson interval", default=None)


@dataclass(frozen=True, kw_only=True)
class SuspectedMislabels:
    """Train labels that disagree with their neighbours."""

    asked: int | None = says("train labels that were voted on: all of them, or 10,000 drawn at random", default=None)
    count: int | None = says("labels of these that the rule calls suspect", default=None)
    share: float | None = says("count over asked", default=None)
    share_ci95: Interval = says("a Wilson interval", default=None)
    expected_by_chance: float | None = says(
        "how many the same rule would call suspect if train labels were as right as test labels", default=None
    )
    expected_by_chance_ci95: Interval = says("from the Wilson interval of the rule's share on test", default=None)
    estimated_rate: float | None = says("estimated share of wrong train labels beyond those in test", default=None)
    estimated_rate_ci95: Interval = None
    space: str | None = says("where the neighbours were taken from", default=None)
    spaces: list[SpaceTried] = says("what there was to choose from")
    neighbours: int = says("nearest train samples that vote; equally far ones vote, too")
    rule: str
    suspects: list[Suspect] = says("the strongest first", default_factory=list)
    caveat: str | None = says("what the numbers above may miss", default=None)
    skipped: str | None = says("why there is no list", default=None)


@dataclass(frozen=True, kw_only=True)
class ClassBalance:
    """How many samples of each class there are, as used."""

    train: dict[str, int] | None = None
    test: dict[str, int] | None = None
    missing_in_train: list[str] | None = None
    missing_in_test: list[str] | None = None
    ratio: float | None = says("largest over smallest class of train, absent ones aside", default=None)
    difference: float | None = says(
        "half the sum of the differences of the classes' shares: 0 alike, 1 disjoint", default=None
    )
    p_value: float | None = says(
        "share of random re-divisions of all samples whose X² is at least as large", default=None
    )
    p_value_ci95: Interval = says("a Wilson interval over the re-divisions", default=None)
    differ: bool | None = says("p_value below 0.01: train and test have different proportions", default=None)
    draws: int = says("random re-divisions behind the p_value", default=0)
    skipped: str | None = says("why there is no balance", default=None)


@dataclass(frozen=True, kw_only=True)
class ToldApart:
    """How well a simple classifier tells test inputs from train inputs, each asked without having seen it."""

    accuracy: float | None = says("share told rightly, both splits counting half; 0.5: by guessing", default=None)
    by_chance: Interval = says("where 95 of 100 random re-divisions of the same samples lie", default=None)
    p_value: float | None = says("share of random re-divisions that are told apart at least as well", default=None)
    p_value_ci95: Interval = says("a Wilson interval over the re-divisions", default=None)
    differ: bool | None = says("p_value of 0.001 or less: test inputs are not like train inputs", default=None)
    samples: int = says("inputs of both splits that were asked: no copies, and of near copies one", default=0)
    draws: int = says("random re-divisions behind the p_value", default=0)
    skipped: str | None = says("why it was not asked", default=None)


@dataclass(frozen=True, kw_only=True)
class GapWithout:
    """The gap with the copied test samples left out."""

    samples: int = says("test samples left")
    loss_gap: float
    loss_gap_ci95: Interval
    error_gap: float | None
    error_gap_ci95: Interval
    loss_gap_shift: float = says("this loss gap minus the one with all test samples")
    error_gap_shift: float | None
    loss_gap_shift_ci95: Interval = says("bootstrap over test samples", default=None)
    error_gap_shift_ci95: Interval = says("bootstrap over test samples", default=None)
    moved: bool = says("whether a gap without copies lies outside the 95 % interval of the gap with them")


@dataclass(frozen=True, kw_only=True)
class Leak:
    """How much of the test split is in train, and whether that voids the verdict."""

    void: bool = says("true: the test split is no evidence about new data")
    why: str
    copies: int = says("test samples that are in train with the same label")
    share: float = says("copies over test samples")
    share_ci95: Interval
    coincidences: int = says("copies that may be chance: other train rows share half of their values")
    repeated_within_train: float = says("share of train samples with a same-label twin within train")
    repeated_within_train_ci95: Interval = says("a Wilson interval", default=None)
    unexplained_share: float = says("copies that are no coincidence, over test samples")
    unexplained_share_ci95: Interval
    searched: float = says("share of the train samples on disk that were searched")
    estimated_share: float = says("share over searched: what a search of all train samples would find, about")
    estimated_share_ci95: Interval = says("share_ci95 over searched", default=None)
    without_copies: GapWithout | None
    skipped: str | None = says("why without_copies is null", default=None)


@dataclass(frozen=True, kw_only=True)
class Hygiene:
    """Are the data themselves in order?"""

    duplicates_across_splits: int = says("test samples whose input is in train")
    duplicates_within_train: int = says("train samples that repeat an earlier one's input")
    duplicates_within_test: int
    near_duplicates: int | None = says("test samples that are almost, but not quite, a train sample")
    conflicting_labels: int = says("samples whose input is in train with another label: conflicts, both kinds together")
    duplicate_pairs: list[Twin] = says("the first of the duplicates across the splits")
    near: NearDuplicates
    conflicts: Conflicts
    suspected_mislabels: SuspectedMislabels
    class_balance: ClassBalance
    leaked: Leak
    told_apart: ToldApart | None = says("null in reports of earlier versions", default=None)
