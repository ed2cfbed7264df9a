"""Which numbers are compared, what they are called, and what a difference in them may be called."""

from __future__ import annotations

from audit.compare.result import BETTER, HIGHER, LOWER, NO_INTERVAL, NOT_COMPARED, SAME, UNKNOWN, WORSE, Number
from audit.measures.catalogue import CATALOGUE
from audit.report.fields import Compared, Interval

ON_SAMPLES = tuple(number for entry in CATALOGUE if entry.place == "report" for number in entry.compared)
"""Numbers that were counted on the samples."""
OBSERVED = tuple(number for number in ON_SAMPLES if number.section == "observed")
"""Those of them that are means of what a report keeps of each sample, so that two models can be paired on it."""
INSIDE = tuple(number for entry in CATALOGUE if entry.place == "network" for number in entry.compared)
"""Numbers that were measured inside the network."""
PRIMARY = {"classification": "gap.test_error", "binary": "gap.test_error", "regression": "gap.test_loss"}
"""The one number that the verdict rests on, by task; declared here, before any data are seen."""


def split_entry(layer: str) -> Compared:
    """The share of a layer's part in the gap that its C steepest directions carry, C the number of classes."""
    key = f"layers.{layer}.duality.fixed.share"
    return Compared(key, f"{layer}: share of the gap in its steepest directions", "duality", "share", of_weights=True)


def skipped(entry: Compared, why: str | None = None) -> Number:
    """A number that was not compared, or not yet."""
    return Number(
        key=entry.key,
        name=entry.name,
        section=entry.section,
        kind=entry.kind,
        old=None,
        new=None,
        difference=None,
        ci95=None,
        verdict=NOT_COMPARED,
        skipped=why,
    )


def verdict(entry: Compared, difference: float, ci95: Interval, identical: bool = False) -> str:
    """What may be said: better or worse where lower is better without doubt, else lower or higher."""
    if identical:
        return SAME
    if ci95 is None:
        return NO_INTERVAL
    if ci95[0] <= 0 <= ci95[1]:
        return UNKNOWN
    if difference > 0:
        return WORSE if entry.judged else HIGHER
    return BETTER if entry.judged else LOWER
