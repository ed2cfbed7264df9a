"""What is measured how: each stage of an audit with its form, its samples, and the time and memory it should take.

A plan is part of the result: another audit with the same plan, model, data and seed gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    columns: int = says("columns of each layer's Hessian that its eigenpairs are found from; 0: all", default=0, ge=0)
    seconds: float = says("predicted time", default=0.0, ge=0)
    bytes: int = says("predicted memory above the model and the data", default=0, ge=0)
    why: str | None = says("why it is not exact", default=None)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All stages; one that is not listed is exact."""

    budget: float | None = says("seconds that the audit may take; null: as many as it takes", default=None)
    memory: int = says("bytes that it may take above Python, the libraries, the model and the data", default=0, ge=0)
    arithmetic: Arithmetic = says("of the passes through the network", default="float64")
    operations: float = says("floating-point operations of one forward pass of one sample", default=0.0, ge=0)
    speed: float = says("operations per second of this machine, as a power of two", default=0.0, ge=0)
    stages: list[PlannedStage] = says("in the order of the work", default_factory=list)

    def stage(self, name: str) -> PlannedStage:
        """How one stage is done."""
        return next((stage for stage in self.stages if stage.name == name), PlannedStage(name=name))

    def is_exact(self, name: str) -> bool:
        """Whether a stage looks at all samples."""
        return self.stage(name).form == "exact"

    @property
    def seconds(self) -> float:
        """Predicted for all stages."""
        return sum(stage.seconds for stage in self.stages)


EXACT = Plan()
"""Everything on all samples, however long it takes."""
