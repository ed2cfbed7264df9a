"""`Report`: everything an audit found, as plain values. Its JSON is the contract behind every other format. No torch.

What a report has beside the measures' blocks, and how it is written and read, is in `audit.report`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from audit.measures.catalogue import LayerBlocks, NetworkBlocks, ReportBlocks
from audit.measures.gap.block import gap_faults
from audit.report.document import adapter_of
from audit.report.identity import PassedByReport
from audit.report.report import SCHEMA, Foot, Head, LayerHead, as_json, read_json
from audit.report.schema import KnownPaths
from audit.report.soundness import faults

Kind = TypeVar("Kind", bound="Report")


@dataclass(frozen=True, kw_only=True)
class LayerReport(LayerBlocks, LayerHead):
    """One dense layer: what it is, and what was measured of it."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """What was measured inside the network."""

    layers: list[LayerReport]
    passed_by: list[PassedByReport]
    network: NetworkBlocks = field(default_factory=NetworkBlocks)


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Foot, Inside, ReportBlocks, Head):
    """An audit, complete."""

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
        adapter = adapter_of(type(self))
        read = adapter.validate_json(json.dumps(self.to_dict(), allow_nan=False))
        values: dict[str, Any] = json.loads(adapter.dump_json(read))
        return values

    def to_json(self) -> str:
        """The contract: stable key order, numbers in full, no NaN."""
        return as_json(self.to_dict())

    @classmethod
    def from_json(cls: type[Kind], text: str, name: str = "report.json") -> Kind:
        """A report read back, or a sentence that says what is wrong with it."""
        return read_json(cls, text, name)

    def faults(self) -> Iterator[str]:
        """What cannot be in a report that has every field, each with its path."""
        yield from faults(self, self, len(self.layers))
        yield from gap_faults(self.gap, self.model)


KNOWN_PATHS = KnownPaths(Report, SCHEMA)
"""Every number, word and boolean that a rule may name."""
