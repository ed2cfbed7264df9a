"""Definition cards: what each number is, where it comes from, what it can and cannot tell. No torch here.

A measure takes its cards from the file of its name; `ALL_CARDS` has them in the order of the report.
"""

from __future__ import annotations

from audit.card import Card
from audit.cards import duality, findings, fisher, flatness, gap, hygiene, sensitivity

ALL_CARDS: tuple[Card, ...] = (
    *gap.CARDS,
    *duality.CARDS,
    *flatness.CARDS,
    *fisher.CARDS,
    *sensitivity.CARDS,
    *hygiene.CARDS,
    *findings.CARDS,
)
