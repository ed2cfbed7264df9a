"""The small words that every block of the report and every definition card are written with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from audit.maths import Interval as Interval

CHECKED = ("ge", "min_length", "pattern")  # limits of a field that are checked when a report is read
Kind = Literal["number", "percent", "share"]
"""How a number is shown."""


def says(description: str, **given: Any) -> Any:
    """A field with the sentence that the JSON Schema prints for it, and the limits that it is read with."""
    limits = {name: given.pop(name) for name in CHECKED if name in given}
    return field(metadata={"description": description, **limits}, **given)


@dataclass(frozen=True)
class Card:
    """What a number is: the definition card that `gen-audit explain` and the report print."""

    id: str  # the number's name in the JSON, such as "flatness.kappa"
    title: str
    meaning: str  # in plain words
    formula: str
    source: str  # paper and equation
    variant: str = ""  # which of the readings the papers leave open
    normalisation: str = ""
    can_tell: str = ""
    cannot_tell: str = ""
    contradictions: str = ""  # what others measured that speaks against it
    covers: tuple[str, ...] = ()  # ids of other numbers, or of blocks, that the card speaks of too


@dataclass(frozen=True)
class Compared:
    """A number by which two reports are compared."""

    key: str  # its path in the JSON
    name: str
    section: str
    kind: Kind = "number"
    judged: bool = False  # whether lower is better, without doubt
    of_weights: bool = False  # whether it runs over layers or weights, so that it needs the same ones on both sides
