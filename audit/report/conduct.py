"""How an audit was conducted: what was measured how, and whether the model is fed as in training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from audit.report.fields import says

Form = Literal["exact", "sampled", "skipped"]
Arithmetic = Literal["float64", "float32"]


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """One stage of an audit."""

    name: str = says("forward, capture, the key of a measure, or checks")
    form: Form = says("exact: on all samples; sampled: with a standard error, an interval or bounds", default="exact")
    samples: int = says("train samples that a sampled form looks at; 0: all", default=0, ge=0)
    tests: int = says("test samples that it looks at, where it is these that it needs", default=0, ge=0)
    columns: int = says("columns of each layer's Hessian that its eigenpairs are found from; 0: all", default=0, ge=0)
    brief: bool = says("only the largest of several changes, few draws, few layers", default=False)
    seconds: float = says("predicted time", default=0.0, ge=0)
    bytes: int = says("predicted memory above the model and the data", default=0, ge=0)
    why: str | None = says("why it is not exact", default=None)

    def looks_at(self, train: int) -> str:
        """Its samples, of as many as there are.

        >>> PlannedStage(name="flatness", samples=64).looks_at(4000), PlannedStage(name="gap").looks_at(4000)
        ('64 of 4,000', 'all 4,000')
        >>> PlannedStage(name="consequences", tests=1000).looks_at(4000)
        '1,000 test'
        """
        if self.form == "skipped":
            return "none"
        if self.tests:
            return f"{self.tests:,} test"
        return f"{min(self.samples, train):,} of {train:,}" if 0 < self.samples < train else f"all {train:,}"

    def told(self, train: int) -> str:
        """The stage in one line.

        >>> PlannedStage(name="flatness", form="sampled", samples=64, seconds=40).told(4000)
        'flatness: sampled on 64 of 4,000 samples, about 40 s'
        """
        if self.form == "skipped":
            return f"{self.name}: left out"
        how = f"{self.form} on {self.looks_at(train)} samples"
        return f"{self.name}: {how}, {self.about}" if self.seconds else f"{self.name}: {how}"

    @property
    def about(self) -> str:
        """The predicted time in words; of what takes none, nothing."""
        return about_seconds(self.seconds) if self.form != "skipped" else ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All stages; one that is not listed is exact."""

    budget: float | None = says("seconds that the audit may take; null: as many as it takes", default=None)
    memory: int = says("bytes that it may take above Python, the libraries, the model and the data", default=0, ge=0)
    arithmetic: Arithmetic = says("of the passes through the network", default="float64")
    operations: float = says("floating-point operations of one forward pass of one sample", default=0.0, ge=0)
    speed: float = says("operations per second of this machine, as a power of two", default=0.0, ge=0)
    quick: bool = says("gap, classes, calibration, hygiene and the last dense layer only", default=False)
    stages: list[PlannedStage] = says("in the order of the work", default_factory=list)

    def stage(self, name: str) -> PlannedStage:
        """How one stage is done."""
        return next((stage for stage in self.stages if stage.name == name), PlannedStage(name=name))

    def is_exact(self, name: str) -> bool:
        """Whether a stage looks at all samples."""
        return self.stage(name).form == "exact"

    @property
    def samples_some(self) -> bool:
        """Whether any stage that shares records of the layers with others looks at some samples alone."""
        return any(stage.form == "sampled" for stage in self.stages if not stage.tests)

    @property
    def seconds(self) -> float:
        """Predicted for all stages."""
        return sum(stage.seconds for stage in self.stages)


EXACT = Plan()
"""Everything on all samples, however long it takes."""


def readable_seconds(seconds: float) -> str:
    """A rough time in words.

    >>> readable_seconds(42.3), readable_seconds(600), readable_seconds(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def about_seconds(seconds: float) -> str:
    """A predicted time in words: several below one second may be far less than as many seconds.

    >>> about_seconds(0.3), about_seconds(42.3)
    ('under 1 s', 'about 42 s')
    """
    return "under 1 s" if seconds < 1 else f"about {readable_seconds(seconds)}"


# How the model is fed: other preprocessings tried, class order, BatchNorm, first layer.


SHIFTED = 0.5  # standard deviations between the means of the samples and of the file, from which a BatchNorm is odd
WIDENED = 1.5  # … and by which factor the deviations themselves may differ
WIDE = 30.0  # spread of the first layer's answers, from which inputs may be out of the range it was trained on


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One way to feed the samples, and how the model does with it. Nothing of the audit is fed so but the first."""

    name: str = says("the preprocessing in words")
    cure: str = says("the flags that feed the samples so, or what to do where no flag does; empty: as they are fed")
    loss: float
    fitted_loss: float = says(
        "mean loss at the best temperature, or of a regression after the best straight line: what it knows"
    )
    error: float | None = says("share of wrong answers; null for regression")
    p_value: float = says(
        "chance of fitted losses so much lower than as fed, by sign and paired z test, times the number of trials"
    )
    sharpness: float = says(
        "what the scores are multiplied by at the best temperature, or the slope of the line: below 1, too sure as fed"
    )
    size: float = says("standard deviation of the numbers fed; 0 in reports that did not say", default=0.0)


@dataclass(frozen=True, kw_only=True)
class ClassOrder:
    """Whether the labels mean the model's outputs in another order, from the answers to the train samples."""

    samples: int
    moved: list[str] = says("classes whose samples are answered as another one, class by class in a circle")
    right: float = says("share of all samples answered rightly")
    right_if_moved: float = says("… and if these classes took each other's places")
    p_value: float = says(
        "largest chance of such a circle on the samples that it was not found on, by a sign test, times their number"
    )
    cure: str = says("the flag with the classes in the order of the outputs; empty where nothing is to be moved")


@dataclass(frozen=True, kw_only=True)
class BatchNormInput:
    """What arrives at a BatchNorm layer against the statistics that its file holds, over channels."""

    name: str
    shift: float = says("median distance between the means, in standard deviations of the file")
    spread: float = says("median ratio of the standard deviations, those of the samples over those of the file")


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """What the first layer makes of the inputs."""

    name: str
    lowest: float = says("smallest number fed")
    highest: float = says("largest number fed")
    spread: float = says("median over its units of the standard deviation of w·x over samples and places")


@dataclass(frozen=True, kw_only=True)
class ConstantInputs:
    """Features of a table that have one value in all train samples."""

    features: int = says("how many features there are")
    constant: int = says("how many of them never vary in train")
    varying_in_test: int = says("… and have another value in some test sample")
    names: list[str] = says("the first of them")


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Is the model fed what it was trained on? Tried on a few train samples; nothing is changed by it."""

    samples: int = says("train samples that other preprocessings were tried on; 0: none were")
    constant_loss: float | None = says("what always giving the best constant answer costs on them", default=None)
    trials: list[Trial] = says("ways to feed them; the first is how they are fed", default_factory=list)
    better: int | None = says(
        "place in trials of a preprocessing that suits the model much better than theirs", default=None
    )
    best_as_fed: bool = says("whether none that was tried has a lower fitted loss", default=False)
    class_order: ClassOrder | None = says("null for regression", default=None)
    batch_norms: list[BatchNormInput] = field(default_factory=list)
    first_layer: FirstLayer | None = None
    constant_inputs: ConstantInputs | None = says("null where samples are images or whole numbers", default=None)
    skipped: str | None = says("why no other preprocessing was tried", default=None)

    @property
    def preferred(self) -> Trial | None:
        """The preprocessing that is much better than the one in use, if there is one."""
        return self.trials[self.better] if self.better is not None and self.trials else None

    @property
    def misordered(self) -> ClassOrder | None:
        """The class order, where it is wrong."""
        return self.class_order if self.class_order is not None and self.class_order.moved else None

    @property
    def odd_norm(self) -> int | None:
        """The place of the first BatchNorm, where what arrives there is not what its statistics are of."""
        norm = self.batch_norms[0] if self.batch_norms else None
        odd = norm is not None and (norm.shift > SHIFTED or not 1 / WIDENED <= norm.spread <= WIDENED)
        return 0 if odd else None

    @property
    def out_of_range(self) -> bool:
        """Whether the first layer answers as if its inputs were too large, and no trial speaks for feeding them so."""
        return self.first_layer is not None and self.first_layer.spread > WIDE and not self.best_as_fed
