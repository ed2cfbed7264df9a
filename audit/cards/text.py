"""A card as lines for a terminal."""

from __future__ import annotations

import textwrap

from audit.card import Card

PARTS = (
    ("Formula", "formula"),
    ("Source", "source"),
    ("Variant", "variant"),
    ("Normalised", "normalisation"),
    ("Can tell", "can_tell"),
    ("Cannot tell", "cannot_tell"),
    ("Against it", "contradictions"),
)
WIDTH = 100


def card_text(card: Card) -> str:
    """Name and meaning first, then each part that the card has, wrapped."""
    head = f"{card.id}: {card.title}" if card.formula else card.id
    lines = [head, *_wrapped("  ", card.meaning)]
    for label, part in PARTS:
        if words := getattr(card, part):
            lines += _wrapped(f"  {label + ':':<13}", words)
    return "\n".join(lines)


def _wrapped(lead: str, words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False)
