"""`Report`: everything an audit found, as plain values. Its JSON is the contract behind every other format. No torch.

Each measure has a folder, `catalogue.py` names them all. What a report has beside the measures' blocks, and how it is
written and read, is in `audit.report`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from audit.errors import UsageError
from audit.measures.catalogue import LayerBlocks, NetworkBlocks, ReportBlocks
from audit.measures.gap.block import gap_faults
from audit.report import SCHEMA, Foot, Head, LayerHead, LayerNotMeasured, faults
from audit.report.fields import KnownPaths, adapter_of, as_json, read_as
from audit.report.paths import children, join

Kind = TypeVar("Kind", bound="Report")


@dataclass(frozen=True, kw_only=True)
class LayerReport(LayerBlocks, LayerHead):
    """One dense layer: what it is, and what was measured of it."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """What was measured inside the network."""

    layers: list[LayerReport]
    passed_by: list[LayerNotMeasured]
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

    def as_read(self: Kind) -> Kind:
        """The report once it is read back: a whole number in a field of fractions is a fraction."""
        read: Kind = adapter_of(type(self)).validate_json(json.dumps(self.to_dict(), allow_nan=False))
        return read

    def to_json(self) -> str:
        """The contract: stable key order, numbers in full, no NaN."""
        return as_json(self.to_dict())

    @classmethod
    def from_json(cls: type[Kind], text: str, name: str = "report.json") -> Kind:
        """A report read back, or a sentence that says what is wrong with it."""
        report: Kind = read_as(cls, text, name, SCHEMA)
        if report.schema != SCHEMA:
            raise UsageError(f"{name}: is a {report.schema} report, not a {SCHEMA} one; read it with what made it.")
        if broken := next(report.faults(), None):
            raise UsageError(f"{name}: is damaged ({broken}); make it anew with `gen-audit report`.")
        return report

    def faults(self) -> Iterator[str]:
        """What cannot be in a report that has every field, each with its path."""
        yield from faults(self, self)
        yield from gap_faults(self.gap, self.model)
        for name, block in (("network", self.network), ("calibration", self.calibration)):
            yield from length_faults(asdict(block), name) if block is not None else ()
        for place, layer in enumerate(self.layers):
            yield from length_faults(asdict(layer), f"layers[{place}]")
            part = layer.duality
            if part is not None and part.sharp is not None and None in (part.flat, part.mean_term):
                yield f"layers[{place}].duality has a sharp part, but no flat part or no mean_term"
        balance = self.hygiene.class_balance if self.hygiene is not None else None
        if balance is not None and (balance.train or {}).keys() != (balance.test or {}).keys():
            yield "hygiene.class_balance: train and test do not count the same classes"


KNOWN_PATHS = KnownPaths(Report)
"""Every number, word and boolean that a rule may name."""


# Lists of a report that belong together, such as a number for each direction and its standard errors.


EQUAL = (("sigma_g", "sigma_w", "c", "contribution", "eigenvalues"), ("predictions", "residuals"))
STANDARD_ERROR = "_std"
RUNNING = ("cumulative_w",)  # of the same length as sigma_g, or left out


def length_faults(value: Any, path: str = "") -> Iterator[str]:
    """Where two lists that are read side by side are not of one length; each fault with its path."""
    if isinstance(value, Mapping):
        yield from _unequal(value, path)
    for name, child in (children(value) or {}).items():
        if children(child) is not None:
            yield from length_faults(child, join(path, name))


def _unequal(block: Mapping[str, Any], path: str) -> Iterator[str]:
    sizes = {name: len(each) for name, each in block.items() if isinstance(each, list)}
    for group in EQUAL:
        if len({sizes[name] for name in group if name in sizes}) > 1:
            yield f"{path}: {' and '.join(name for name in group if name in sizes)} are not of one length"
    for name, size in sizes.items():
        partner = "sigma_g" if name in RUNNING else name.removesuffix(STANDARD_ERROR)
        if partner != name and size and size != sizes.get(partner, size):
            yield f"{path}: {partner} and {name} are not of one length"
    if "edges" in sizes and "counts" in sizes and sizes["edges"] != sizes["counts"] + 1:
        yield f"{path}: edges and counts do not fit"
    for place, width in enumerate(block["widths"] if "widths" in sizes and "sigma_g" in sizes else ()):
        if not 1 <= width["direction"] <= sizes["sigma_g"]:
            yield f"{path}.widths[{place}]: there is no direction {width['direction']}"
