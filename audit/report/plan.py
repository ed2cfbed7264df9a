"""What is measured how: each stage of an audit with its form, its samples, and the time and memory it should take.

A plan is part of the result: another audit with the same plan, model, data and seed gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audit.report.fields import says

Form = Literal["exact", "sampled", "skipped"]
Arithmetic = Literal["float64", "float32"]

CONSEQUENCES = "consequences"  # the stage that runs the network by itself, and takes no records of its layers
MOST_TESTS = 1024  # test samples that it looks at
TESTS_PER_TRAIN = 4  # of them, to one train sample
MOST_LAYERS, FEW_LAYERS = 12, 3  # whose weights it changes; where time is short


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
        return f"about {readable_seconds(self.seconds)}" if self.form != "skipped" else ""


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
        return any(stage.form == "sampled" for stage in self.stages if stage.name != CONSEQUENCES)

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
