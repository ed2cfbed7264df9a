"""What every report has beside the blocks of the measures: what was audited, and what was made of the numbers.

`audit.measures.Report` puts the measures' blocks between these. The field names are public: they may be added
to, never renamed. A number that does not exist is null, and `skipped` beside it says why; NaN and Infinity never leave
this room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from audit.report.blocks import Check, Gallery, Outcomes, Reference, gallery_faults, outcomes_faults
from audit.report.conduct import EXACT, Doctor, Plan
from audit.report.fields import Interval, says
from audit.report.paths import leaves, not_finite, value_at
from audit.report.twins import Twins

SCHEMA = "gen-audit/1"
Task = Literal["classification", "binary", "regression", "tagging"]
LossName = Literal["cross_entropy", "bce", "mse"]
Level = Literal["good", "note", "watch", "concern"]
LEVELS: tuple[Level, ...] = ("concern", "watch", "note", "good")  # heaviest first


@dataclass(frozen=True, kw_only=True)
class Tool:
    """What made the report."""

    name: str
    version: str
    python: str
    torch: str
    onnxruntime: str
    platform: str
    threads: int | None = says("that torch computed with, which decides in which order sums are rounded", default=None)
    digits: int | None = says(
        "leading digits of a number that come back with any number of threads, or on another machine; the same "
        "versions and threads on the same machine give every bit; rounding itself, such as a residual, has none",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """How well the converted network agrees with the file's own runtime, on real samples."""

    against: str
    samples: int
    batch_sizes: list[int]
    max_abs_diff: float
    tolerance: float = says("largest difference that would have been let through; beyond it the audit stops")
    widened: bool = says("whether the tolerance is wider than usual, as the network magnifies rounding", default=False)


@dataclass(frozen=True, kw_only=True)
class InputReport:
    """What the network takes."""

    name: str
    shape: list[int] = says("shape of one sample as it was fed")
    dtype: str
    batch: int | None = says("a batch size the file insists on", default=None)


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """The audited model."""

    path: str
    format: str
    sha256: str = says("of the file; with weights in files beside it, of all of them one after the other")
    parameters: int
    task: Task = says("classification, binary, regression, or tagging: a class for every position of a sample")
    loss: LossName = says("cross_entropy (nats), bce, or mse (half the squared error, summed over outputs)")
    output: str = says("logits, or scores for regression: what every measure is about")
    output_name: str
    outputs: int = says("how many numbers it answers with", ge=1)
    head: str = says("the final layer that was taken off to reach the logits: none, softmax, log_softmax, sigmoid, …")
    input: InputReport
    opset: int | None
    parity: ParityReport | None = says("null where the file has no runtime of its own to compare with")
    notes: list[str] = says("what was done to the model on the way in")
    factor: float = says("what its scores were multiplied by before anything was measured", default=1.0)


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """One split as used."""

    samples: int = says("samples used")
    total: int = says("samples in the folder")
    class_counts: dict[str, int] | None = says("samples used per class; null for regression")


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """The data the model was judged on."""

    path: str
    layout: str
    sha256: str
    classes: int | None
    class_names: list[str] | None
    train: SplitReport
    test: SplitReport
    split_is_ours: bool = says("true where gen-audit made the split: the gap is then no evidence about the release")
    notes: list[str] = says("how the inputs were read and fitted to the model")
    test_is_validation: bool = says("true where a split named validation stands in for a test split", default=False)


@dataclass(frozen=True, kw_only=True)
class LayerNotMeasured:
    """A layer with weights that was not measured, and why."""

    name: str
    op: str
    why: str


@dataclass(frozen=True, kw_only=True)
class LayerHead:
    """One dense layer: what it is."""

    name: str
    op: str
    in_features: int
    out_features: int
    bias: bool
    tokens: int = says("vectors per sample that the layer is applied to")
    calls: int = says("how often one forward pass uses it; more than 1: the weights are shared between uses")
    tied_with: list[str] = says("other layers that hold the very same weights")
    cut_point: bool = says("whether everything on the way to the output runs through it")
    fed_by_input: bool = says("whether its input is the model's input")
    curvature: str = says("exact; gauss-newton where the network allows no second derivative")
    tail: str = says("piecewise-linear or curved: the network after this layer, as seen on the samples")
    samples: int = says("train samples captured")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence for the reader, with what it rests on."""

    id: str
    level: Level = says("good, note, watch or concern")
    title: str
    explanation: str
    evidence: dict[str, Any] = says("what it rests on: paths of this JSON, and the value that stands there")
    advice: str
    source: str
    first_page: bool = says("whether it is among the few that a reader should see first", default=False)


@dataclass(frozen=True, kw_only=True)
class Weakest:
    """The class on which the model is most surely worse than on others."""

    name: str
    error: float = says("share of its test samples answered wrongly")
    error_ci95: Interval = says("Wilson's interval of a share")
    may_be_chance: bool = says("whether the weakest of as many equal classes could look so, at 5 % for all together")


@dataclass(frozen=True, kw_only=True)
class BottomLine:
    """The report in one sentence, with the numbers in it."""

    level: Level = says("good, note, watch or concern; `gen-audit explain bottom_line` has the rules")
    sentence: str = says("how good, against what, where weakest, how sure")
    because: str = says("what the level follows from")
    advice: str = says("what to do next")
    number: Literal["accuracy", "rmse", "none"] = says("what value and guess are; none: nothing can be said")
    value: float | None = says("on test: share of right answers, or root mean squared error", default=None)
    value_ci95: Interval = None
    guess: float | None = says("the same of always answering train's commonest class, or its mean", default=None)
    weakest: Weakest | None = says("null for regression, and where no class makes mistakes", default=None)


@dataclass(frozen=True, kw_only=True)
class NotJudged:
    """A question that the audit leaves open, and why."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Head:
    """What was audited, when and how: the first lines of a report."""

    __pydantic_config__ = {"allow_inf_nan": False}  # noqa: RUF012  # pydantic's name, of this class and all inside it

    schema: str
    created: str
    tool: Tool
    command: str
    settings: dict[str, Any]
    model: ModelReport
    data: DataReport


@dataclass(frozen=True, kw_only=True)
class Foot:
    """What the audit made of its numbers: checks, findings, samples to look at."""

    gallery: Gallery | None = says("samples to look at, named elsewhere in the report", default=None)
    checks: list[Check] = field(default_factory=list)
    warnings: list[str] = says("what a reader must know before any number", default_factory=list)
    doctor: Doctor | None = says("whether the model is fed what it was trained on", default=None)
    bottom_line: BottomLine | None = says("the report in one sentence", default=None)
    findings: list[Finding] = says("ordered by weight: concern, watch, note, good", default_factory=list)
    not_judged: list[NotJudged] = says("what could not be judged, and why", default_factory=list)
    reference: Reference | None = says("past audits to see this one beside, if asked for", default=None)
    twins: Twins | None = says("networks of its architecture trained anew on its data, if there are any", default=None)
    outcomes: Outcomes | None = says("each sample's loss and mistake, to pair two reports", default=None)
    timings: dict[str, float | dict[str, float]] = says(
        "wall time of each stage in seconds; measures: of each measure's last step", default_factory=dict
    )
    plan: Plan = says("what was measured how; the times beside it are in timings", default=EXACT)


def faults(head: Head, foot: Foot) -> Iterator[str]:
    """What the types cannot see around the measures' blocks, each fault with its path. Both are the same report.

    Whoever reads a report may then rely on it: no page, comparison or gate looks for damage again.
    """
    anything = {"settings": head.settings, "findings": [{"evidence": finding.evidence} for finding in foot.findings]}
    for path, value in leaves(anything):
        if not_finite(value):
            yield f"{path} is not a finite number"
    if foot.doctor is not None and not 0 <= (foot.doctor.better or 0) < max(1, len(foot.doctor.trials)):
        yield "doctor.better is not a place in doctor.trials"
    if foot.gallery is not None:
        yield from gallery_faults(foot.gallery)
    if foot.outcomes is not None:
        yield from outcomes_faults(foot.outcomes, head.model.task)
    for place, finding in enumerate(foot.findings):
        for path in (path for path in finding.evidence if "[" in path):  # a member by position, which pages look up
            try:
                value_at(path, head)
            except LookupError as error:
                yield f"findings[{place}] rests on {error}"
