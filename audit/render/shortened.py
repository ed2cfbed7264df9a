"""Definition cards for paper: grouped, with every work named once and numbered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from audit.card import Card
from audit.cards import ALL_CARDS
from audit.render.sections import SECTIONS

GROUPS = {**SECTIONS, "findings": "Findings"}
WORK = re.compile(r"^(?P<work>.{30,}?\(\d{4}\))(?:, (?P<place>.*))?$")

Group = tuple[str, list[tuple[int, str]], list[tuple[Card, str, str]]]  # heading, works, cards with limits and sources


def group_of(card: Card) -> str:
    """Which part of the report a card belongs to."""
    return card.id.split(".")[0]


def short_cards(cards: Sequence[Card] = ALL_CARDS) -> Iterator[Group]:
    """The cards of each section; works that several cards cite stand once above them."""
    cited = Counter(work for card in cards if (work := _work(card)))
    numbers = {work: place for place, work in enumerate((work for work in cited if cited[work] > 1), start=1)}
    for key, name in SECTIONS.items():
        own = [card for card in cards if group_of(card) == key]
        works = dict.fromkeys(work for card in own if (work := _work(card)) in numbers)
        if own:
            limits = [_limits(card, own[:place]) for place, card in enumerate(own)]
            sources = [_source(card, numbers) for card in own]
            yield name, [(numbers[work], work) for work in works], list(zip(own, limits, sources, strict=True))


def _limits(card: Card, before: Sequence[Card]) -> str:
    """What the number cannot tell; where an earlier card says the same, that one is named."""
    same = next((other.title for other in before if other.cannot_tell == card.cannot_tell), None)
    return f"as for {same}." if same and card.cannot_tell else card.cannot_tell


def _work(card: Card) -> str | None:
    found = WORK.match(card.source)
    return found["work"] if found else None


def _source(card: Card, numbers: dict[str, int]) -> str:
    """The source with its work as a number: [2], Eqs. 8–9."""
    found = WORK.match(card.source)
    if found and found["work"] in numbers:
        place = f", {found['place']}" if found["place"] else ""
        return f"[{numbers[found['work']]}]{place}{'' if place.endswith('.') else '.'}"
    return card.source if card.source.endswith(".") else f"{card.source}."
