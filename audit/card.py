"""`Card`: what a number is. Plain values, so that `gen-audit explain` and the report need no torch."""

from __future__ import annotations

from dataclasses import dataclass


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
