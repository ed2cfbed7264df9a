"""What was audited and with what: tool, model, data and their layers that were not measured."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.fields import says


@dataclass(frozen=True, kw_only=True)
class Tool:
    """What made the report."""

    name: str
    version: str
    python: str
    torch: str
    onnxruntime: str
    platform: str


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
    task: str = says("classification, binary or regression")
    loss: str = says("cross_entropy (nats), bce, or mse (half the squared error, summed over outputs)")
    output: str = says("logits, or scores for regression: what every measure is about")
    output_name: str
    outputs: int
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


@dataclass(frozen=True, kw_only=True)
class PassedByReport:
    """A layer with weights that was not measured, and why."""

    name: str
    op: str
    why: str
