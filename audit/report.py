"""`Report`: everything an audit found, as plain values. Its JSON is the contract behind every other format.

The field names are public: they may be added to, never renamed. A number that does not exist is null, and `skipped`
beside it says why; NaN and Infinity never leave this room.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.blocks.checks import Check
from audit.blocks.duality import Carriers, DualityBlock
from audit.blocks.fisher import LayerFisher, NetworkFisher
from audit.blocks.flatness import LayerFlatness, NetworkFlatness
from audit.blocks.gallery import Gallery
from audit.blocks.gap import GapReport
from audit.blocks.hygiene import Hygiene
from audit.blocks.outcomes import Outcomes
from audit.blocks.reference import Reference
from audit.blocks.sensitivity import LayerSensitivity, NetworkSensitivity
from audit.damage import damage
from audit.errors import UsageError
from audit.fields import says

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from audit.policy import Verdict
    from audit.policy.given import PolicyLike

SCHEMA = "gen-audit/1"
NUMBERS = re.compile(r"\[\n[-+.\deE,\s]+\]")  # a list of numbers, which goes on one line; no string holds a line break


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
class LayerReport:
    """One dense layer."""

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
    duality: DualityBlock | None = None
    flatness: LayerFlatness | None = None
    fisher: LayerFisher | None = None
    sensitivity: LayerSensitivity | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkReport:
    """What was measured of the network as a whole."""

    duality: Carriers | None = None
    flatness: NetworkFlatness | None = None
    fisher: NetworkFisher | None = None
    sensitivity: NetworkSensitivity | None = None


@dataclass(frozen=True, kw_only=True)
class PassedByReport:
    """A layer with weights that was not measured, and why."""

    name: str
    op: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence for the reader, with what it rests on."""

    id: str
    level: str = says("good, note, watch or concern")
    title: str
    explanation: str
    evidence: dict[str, Any] = says("what it rests on: paths of this JSON, and the value that stands there")
    advice: str
    source: str
    first_page: bool = says("whether it is among the few that a reader should see first", default=False)


@dataclass(frozen=True, kw_only=True)
class NotJudged:
    """A question that the audit leaves open, and why."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """An audit, complete."""

    schema: str
    created: str
    tool: Tool
    command: str
    settings: dict[str, Any]
    model: ModelReport
    data: DataReport
    gap: GapReport
    layers: list[LayerReport]
    passed_by: list[PassedByReport]
    network: NetworkReport = field(default_factory=NetworkReport)
    hygiene: Hygiene | None = None
    gallery: Gallery | None = says("samples to look at, named elsewhere in the report", default=None)
    checks: list[Check] = field(default_factory=list)
    warnings: list[str] = says("what a reader must know before any number", default_factory=list)
    findings: list[Finding] = says("ordered by weight: concern, watch, note, good", default_factory=list)
    not_judged: list[NotJudged] = says("what could not be judged, and why", default_factory=list)
    reference: Reference | None = says("past audits to see this one beside, if asked for", default=None)
    outcomes: Outcomes | None = says("each sample's loss and mistake, to pair two reports", default=None)
    timings: dict[str, float | dict[str, float]] = says(
        "wall time of each stage in seconds; measures: of each measure's last step", default_factory=dict
    )

    def __repr__(self) -> str:
        """Two lines for a prompt; `to_dict` has everything."""
        loss = f"loss {self.gap.train_loss:.4g} on train, {self.gap.test_loss:.4g} on test"
        levels = [finding.level for finding in self.findings]
        weights = f"{levels.count('concern')} of concern, {levels.count('watch')} to watch"
        return f"Report(model={self.model.path!r}, data={self.data.path!r})\n{loss}; {len(levels)} findings, {weights}"

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, as in the JSON."""
        return asdict(self)

    def as_read(self) -> dict[str, Any]:
        """The values of the report once it is read back: a whole number in a field of fractions is a fraction."""
        adapter = _adapter(type(self))  # type: ignore[arg-type]  # a class can be hashed
        read = adapter.validate_json(json.dumps(self.to_dict(), allow_nan=False))
        values: dict[str, Any] = json.loads(adapter.dump_json(read))
        return values

    def to_json(self) -> str:
        """The contract: stable key order, numbers in full, no NaN."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        return NUMBERS.sub(lambda found: f"[{' '.join(found[0][1:-1].split())}]", text) + "\n"

    def check(self, policy: PolicyLike = None, baseline: Report | None = None, *, strict: bool = False) -> Verdict:
        """The verdict of a policy (a `Policy`, a file, rules in a dictionary, or the default) on this report."""
        from audit.policy import judge
        from audit.policy.given import as_baseline, as_policy

        return judge(as_policy(policy), self, as_baseline(baseline), strict=strict)

    def save(
        self, folder: str | Path, formats: str | Sequence[str] = "html,json", verdict: Verdict | None = None
    ) -> list[Path]:
        """Writes the files of `gen-audit report -f FORMATS` into `folder` and returns their paths."""
        from audit.render.save import save

        return save(self, Path(folder), formats, verdict)

    def _repr_html_(self) -> str:
        """How a notebook shows the report."""
        from audit.render.notebook import render_notebook

        return render_notebook(self.to_dict())

    @classmethod
    def from_json(cls, text: str, name: str = "report.json") -> Report:
        """A report read back, or a sentence that says what is wrong with it."""
        from pydantic import ValidationError
        from pydantic_core import from_json

        try:
            report: Report = _adapter(cls).validate_json(text)  # type: ignore[arg-type]  # a class can be hashed
        except ValidationError as error:
            first = error.errors()[0]
            wrong = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
            raise UsageError(
                f"{name}: is not a {SCHEMA} report ({wrong}); make it anew with `gen-audit report`."
            ) from error
        if report.schema != SCHEMA:
            raise UsageError(f"{name}: is a {report.schema} report, not a {SCHEMA} one; read it with what made it.")
        if broken := damage(report, from_json(text)):
            raise UsageError(f"{name}: is damaged ({broken}); make it anew with `gen-audit report`.")
        return report


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the report."""
    return schema_of(Report, SCHEMA)


def schema_of(kind: type, name: str) -> dict[str, Any]:
    """The JSON Schema of a dataclass whose field `schema` says `name`."""
    schema = _adapter(kind).json_schema()
    schema["properties"]["schema"] = {"const": name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':schema:', 1).replace('/', ':')}",
        **schema,
    }


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Made once: it takes longer than reading a report with it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
