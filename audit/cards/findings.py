"""Definition cards of the findings: each rule's own words, with the origin of its limits."""

from __future__ import annotations

from audit.card import Card
from audit.findings.rules import RULES

CARDS: tuple[Card, ...] = tuple(
    Card(
        id=f"findings.{rule.id}",
        title=rule.title,
        meaning=rule.meaning,
        formula=rule.conditions,
        source=rule.source,
        variant=f"Limits: {rule.origin}",
        cannot_tell=rule.cannot_tell,
    )
    for rule in RULES
)
