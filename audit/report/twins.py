"""What the report says beside twins: networks of the model's own architecture, trained anew on its own data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from audit.report.fields import Card, Interval, Kind, says

Place = Literal["below", "inside", "above"]
Verdict = Literal["same", "shifted", "easier", "cannot tell"]
Effect = Literal["helps", "hurts", "no difference", "cannot tell"]

NAMES: Mapping[str, tuple[str, Kind]] = {
    "duality.fixed.share": ("share of the gap in its steepest directions", "share"),
    "duality.total_g": ("total steepness (T_g)", "number"),
    "duality.total_w": ("total size of dual changes (T_w)", "number"),
    "flatness.weight_norm_squared": ("squared weights (‖W‖²)", "number"),
    "flatness.kappa_tau": ("curvature over all directions, scale-free (κ_τ)", "number"),
    "flatness.rho_sigma": ("curvature over all neurons (ρ_σ)", "number"),
    "fisher.gamma": ("Fisher log-determinant (γ̂)", "number"),
    "sensitivity.mls": ("sensitivity to the input (MLS)", "number"),
    "sensitivity.mean_log_volume_centred": ("local volume, centred scores, logarithm", "number"),
    "sensitivity.mean_log_volume": ("local volume, logarithm", "number"),
    "sensitivity.dimensionality": ("local dimensionality", "number"),
}
"""What a number is called, by the end of its path, and how it is shown."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """One number of the model among those of its twins.

    A band is a prediction interval: another twin would lie inside in 95 of 100 cases.
    """

    key: str = says("path of the number in a report; layers by their names")
    name: str
    layer: str | None = says("null for a number of the whole network", default=None)
    kind: Kind = says("how it is shown: number, percent or share", default="number")
    value: float = says("of the model, measured as its twins were")
    mean: float = says("of the plain twins of the model's family")
    low: float
    high: float
    place: Place = says("of the value beside the band; beside the ordinary one, where it is wider")
    percentile: float = says("share of further twins that would lie below the value, as the band foretells", ge=0.0)
    twins: int = says("plain twins of the family behind it", ge=2)
    ordinary: Interval = says("where plain twins of all ordinary recipes lie; null with a recipe given", default=None)
    values: list[float] = says("of the plain twins of the family", default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TwinsOfKind:
    """The twins of one kind: as the plain ones, but for one change."""

    name: str
    family: str = says("name of the recipe that was changed")
    change: str
    question: str
    made: int
    reached: int = says("of them, those that came down to the train loss of their kind")
    restarts: int = says("times that one of them diverged and was begun anew at half the rate", default=0)
    test: list[float] = says(
        "wrong answers on test, as a share, of each twin that did not diverge; for regression the loss"
    )
    numbers: dict[str, list[float]] = says("inner numbers of each twin, for the dots", default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """Which kind of training the model resembles, by its inner numbers alone, and how well that can be told here."""

    kind: str | None = says(
        "the kind; null where the model is unlike all of them, or where it cannot be told. With an inferred recipe "
        "also one that the model is far from, but nearer to than any other kind is; and plain stands for the other "
        "ordinary recipes that were tried, too"
    )
    family: str = says("the recipe, or its family where none was given")
    next: str | None = says("the second nearest kind", default=None)
    sureness: float | None = says("probability of the kind, of those that were made", default=None)
    far: bool = says("whether the model lies farther from every kind than twins lie from their own", default=False)
    hit_rate: float | None = says("share of networks of known training that the rule tells rightly", default=None)
    hit_rate_ci95: Interval = says("a Wilson interval", default=None)
    asked: int = says("networks behind hit_rate: each twin without itself; see the card", default=0)
    hits: int = says("of these, told rightly", default=0)
    hit_rate_of_kind: float | None = says("of those told to be of the nearest kind, share that are", default=None)
    kinds: list[str] = says("in the order of the rows and columns of confusion", default_factory=list)
    confusion: list[list[int]] = says(
        "twins; row: their kind, column: the nearest of the others'", default_factory=list
    )
    skipped: str | None = says("why nothing can be told", default=None)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Twins that were trained on so many samples."""

    train_samples: int
    test: float = says("mean over twins of wrong answers on test, as a share; of the loss for regression")
    test_ci95: Interval = says("of the mean over twins")
    twins: int


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What more data would bring: the test error of twins against their number of train samples."""

    points: list[CurvePoint] = field(default_factory=list)
    twice: float | None = says("foretold for a network trained on twice the train samples", default=None)
    twice_ci95: Interval = says("where one such network will lie", default=None)
    change: float | None = says("that, minus what it is now in the mean", default=None)
    change_ci95: Interval = says("of the mean over networks", default=None)
    verdict: Effect = says("of twice the train samples", default="cannot tell")
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Is test like train? Twins on a half of the train samples, on the other half and on test."""

    held_out: float | None = says("share of train samples not seen that are wrong; regression: loss", default=None)
    test: float | None = None
    difference: float | None = says("test minus held-out", default=None)
    ci95: Interval = None
    without_suspects: float | None = says("held-out, without train labels that twins contradict", default=None)
    samples: int = says("train samples that some twin has not seen", default=0)
    twins: int = 0
    verdict: Verdict = "cannot tell"
    why: str | None = says("where it cannot be told", default=None)


@dataclass(frozen=True, kw_only=True)
class Contradicted:
    """A train label that twins which have not seen the sample contradict."""

    index: int = says("position in the train split as stored")
    label: str
    told: str = says("the class that they answer")
    twins: int = says("twins that have not seen the sample; all of them answer so")
    confidence: float = says("mean probability that they give the class")


@dataclass(frozen=True, kw_only=True)
class WhoseErrors:
    """Test samples that nobody gets right, and those that only this model gets wrong."""

    tests: int = 0
    wrong: int = says("test samples that the model gets wrong", default=0)
    shared: int = says("of these, wrong by half of the plain twins or more: the data's", default=0)
    hard: list[int] = says("positions of those that all plain twins and the model get wrong", default_factory=list)
    own: list[int] = says("positions of those that the model alone gets wrong", default_factory=list)
    hard_count: int = 0
    own_count: int = 0
    own_expected: float | None = says("what a plain twin has of these beside the others, in the mean", default=None)
    saved_count: int = says("test samples that the model alone gets right", default=0)
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Train labels beside what twins answer that have not seen them."""

    looked_at: int = says("train samples that two twins or more have not seen", default=0)
    contradicted: int = 0
    share: float | None = None
    both: int | None = says(
        "of them, suspects of the nearest neighbours, too; null where those were not asked", default=None
    )
    samples: list[Contradicted] = says("the most confident ones", default_factory=list)
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of the training that was tried, and what it did to the test error here."""

    kind: str
    change: str
    twins: int
    effect: float = says("mean test error of its twins minus that of plain ones; of the loss for regression")
    ci95: Interval
    verdict: Effect


@dataclass(frozen=True, kw_only=True)
class Twins:
    """The model beside its twins."""

    folder: str
    whole: bool = says("whole networks were trained; if not, the dense tail on the model's own features")
    recipe_given: bool
    family: str = says("name of the recipe, or of the ordinary one that the model resembles most")
    recipe: str = says("in words")
    target: float = says("the train loss that twins were trained to: the model's own")
    made: int
    kinds: list[TwinsOfKind]
    left_out: dict[str, str] = says("kinds that were not made, and why", default_factory=dict)
    test_error: Band | None = says("wrong answers on test, as a share; null for regression", default=None)
    test_loss: Band | None = says("for regression; a classifier's hinges on how sure it is", default=None)
    numbers: list[Band] = says("inner numbers; empty for twins of a tail", default_factory=list)
    likeness: Likeness | None = None
    curve: Curve | None = None
    held_out: HeldOut | None = None
    errors: WhoseErrors | None = None
    labels: Labels | None = None
    remedies: list[Remedy] = field(default_factory=list)
    notes: list[str] = says("what a reader should know of how they were made", default_factory=list)

    @property
    def test(self) -> Band | None:
        """The number by which models of this task are judged."""
        return self.test_error or self.test_loss

    @property
    def inside(self) -> int:
        """Inner numbers that lie inside."""
        return sum(band.place == "inside" for band in self.numbers)


CARDS = (
    Card(
        id="twins.numbers",
        title="A number beside its twins",
        meaning=(
            "Where a number of the model lies among those of networks of its own architecture, trained anew on its own "
            "data down to its own train loss."
        ),
        formula="mean ± t s √(1 + 1/K) over K plain twins, of logarithms where all are positive; t: Student's, K − 1",
        source="Student's prediction interval; twins are described in the documentation.",
        variant=(
            "Without a given recipe, a number is inside where it lies in the band of the nearest ordinary recipe or in "
            "that of all ordinary recipes together, whose spread is that of recipes and of twins."
        ),
        can_tell="Whether the number is usual for this architecture on these data at this train loss.",
        cannot_tell="Whether unusual is worse: that must be shown by the errors. K twins know their spread to 1/√(2K).",
        covers=("twins", "twins.test_error", "twins.test_loss"),
    ),
    Card(
        id="twins.likeness",
        title="Likeness to a kind of training",
        meaning="Which of the kinds of twins the model resembles most, by its inner numbers alone.",
        formula="nearest kind by (x − m)ᵀ S⁻¹ (x − m); x: logarithms of the inner numbers, S: shrunken, within kinds",
        source="Schäfer & Strimmer (2005) for S; the hit rate by leaving out.",
        variant=(
            "The hit rate is of the whole rule, asked of every twin without itself and, where the recipe was inferred, "
            "of the plain ones of each other recipe without that recipe. Then plain is as near as the nearest ordinary "
            "recipe, a kind is named from afar if the model is nearer to it than any other kind is, and none but plain "
            "is named where the model is no farther from plain than the nearest other recipe is."
        ),
        can_tell="Which of the trainings that were tried leaves such a network here; the hit rate stands beside it.",
        cannot_tell=(
            "How the model was really trained, nor anything of kinds that were not made. Networks made here differ in "
            "one thing; a model may differ in several, and is then told less surely than the hit rate says."
        ),
    ),
    Card(
        id="twins.curve",
        title="What twice the data would bring",
        meaning="The test error of twins on a quarter, a half and all of the train samples, drawn on to twice as many.",
        formula="slope of the log error per doubling: (s₁ + 2 s₂)/3, at most 0",
        variant=(
            "Its interval adds up how well twins and test samples know it, and how far off such guesses were: 0.04 and "
            "0.3 of the true slope."
        ),
        source="Learning curves are nearly straight on logarithms; how far off the guess is was measured.",
        can_tell="About how much more data of the same kind would help this architecture.",
        cannot_tell="What data of another kind, or another architecture, would bring.",
    ),
    Card(
        id="twins.held_out",
        title="Test beside train samples not seen",
        meaning="The error of twins on the half of the train samples that they have not seen, beside that on test.",
        formula="difference of two means over samples; different: beyond chance at 0.1 % and by more than a tenth",
        source="Counting.",
        can_tell="Whether test comes from the same source as train, without any assumption on the model.",
        cannot_tell="Whether either is like what the model will meet in use.",
    ),
    Card(
        id="twins.errors",
        title="Whose errors",
        meaning="How many of the model's mistakes on test are made by most networks like it, and how many by it alone.",
        formula="shared: wrong in half or more of the plain twins; own: in at most a tenth; hard: in all",
        source="Counting.",
        can_tell="Which mistakes another seed would mend, and which are of the samples or their labels.",
        cannot_tell="Which of the hard samples are wrongly labelled: look at them.",
        covers=("twins.labels",),
    ),
    Card(
        id="twins.remedies",
        title="Advice that was tried",
        meaning="How the test error of twins changes with one change of their training.",
        formula="difference of means; variances over twins (Welch) and over test samples add",
        source="Counting; helps or hurts: the interval, widened for all that were tried, leaves out zero.",
        can_tell="Whether this change helped this architecture on these data.",
        cannot_tell="Whether it helps with another recipe, size or data.",
    ),
)
