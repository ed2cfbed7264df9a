"""What every report has beside the blocks of the measures, and how it is written as JSON and read back.

`audit.measures.report.Report` puts the measures' blocks between these. The field names are public: they may be added
to, never renamed. A number that does not exist is null, and `skipped` beside it says why; NaN and Infinity never leave
this room.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from audit.errors import UsageError
from audit.report.blocks import Check, Gallery, Outcomes, Reference
from audit.report.document import adapter_of
from audit.report.fields import says
from audit.report.identity import DataReport, ModelReport, Tool
from audit.report.paths import leaves, not_finite

SCHEMA = "gen-audit/1"
NUMBERS = re.compile(r"\[\n[-+.\deE,\s]+\]")  # a list of numbers, which goes on one line; no string holds a line break
Kind = TypeVar("Kind", bound="Head")


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


@dataclass(frozen=True, kw_only=True)
class Head:
    """What was audited, when and how: the first lines of a report."""

    schema: str
    created: str
    tool: Tool
    command: str
    settings: dict[str, Any]
    model: ModelReport
    data: DataReport

    def faults(self) -> Iterator[str]:
        """What cannot be in a report that has every field, with its path: see `audit.report.soundness`."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Foot:
    """What the audit made of its numbers: checks, findings, samples to look at."""

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


def as_json(values: Mapping[str, Any]) -> str:
    """The contract: stable key order, numbers in full, no NaN."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(lambda found: f"[{' '.join(found[0][1:-1].split())}]", text) + "\n"


def read_json(kind: type[Kind], text: str, name: str) -> Kind:
    """A report of type `kind`, or a sentence that says what is wrong with it."""
    from pydantic import ValidationError
    from pydantic_core import from_json

    try:
        report: Kind = adapter_of(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        wrong = f"{name}: is not a {SCHEMA} report ({'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']})"
        raise UsageError(f"{wrong}; make it anew with `gen-audit report`.") from error
    if report.schema != SCHEMA:
        raise UsageError(f"{name}: is a {report.schema} report, not a {SCHEMA} one; read it with what made it.")
    infinite = (f"{path} is not a finite number" for path, value in leaves(from_json(text)) if not_finite(value))
    if broken := next(chain(infinite, report.faults()), None):
        raise UsageError(f"{name}: is damaged ({broken}); make it anew with `gen-audit report`.")
    return report
