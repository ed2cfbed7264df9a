"""Definition cards: what each number is, where it comes from, what it can and cannot tell. No torch here.

A measure takes its cards from the file of its name; `ALL_CARDS` has them in the order of the report.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

from audit.errors import UsageError
from audit.findings.bottom_line import CARD as BOTTOM_LINE
from audit.findings.rules import RULES
from audit.measures import KNOWN_PATHS
from audit.measures.catalogue import CATALOGUE, KEYS_OF_REPORT
from audit.report.fields import Card
from audit.report.twins import CARDS as OF_TWINS

# The words that a reader of the report may not know: on the page, in the documentation and for `gen-audit explain`.


WORDS = {
    "95 % interval": "Where the true value probably lies: such intervals hold it in 95 of 100 cases.",
    "baseline": "An earlier model, or its report, that this one is compared with.",
    "bootstrap": "Drawing the same samples again at random, many times, to see how much a number varies by chance.",
    "calibration": "Whether a model is right as often as it says: of answers given with 90 %, nine in ten are.",
    "confidence": "The probability that a model gives to its own answer.",
    "constant answer": "Always answering the same, whatever the input: the commonest class, or the mean.",
    "cross-entropy": "The loss of a classifier: minus the logarithm of the probability given to the right class.",
    "curvature": "How fast the slope of the loss changes when the weights are changed.",
    "dense layer": "A layer in which every input is joined to every output by a weight of its own.",
    "Fisher information": "How large the gradients of single train samples are, and in how many directions.",
    "generalization gap": "How much worse a model does on samples it has not seen than on those it was trained on.",
    "Hessian": "The table of all second derivatives of the loss: its curvature in every direction of the weights.",
    "leak": "Test samples that are also in the train data, so that they are not new to the model.",
    "logit": "A raw score of a class, before scores are made into probabilities.",
    "loss": "What one answer costs: the better the answer, the lower.",
    "nat": "The unit of cross-entropy: 0.7 nats are the cost of a fair coin flip.",
    "overfit": "A model that has learnt its train samples by heart and does worse on new ones.",
    "parameter": "A number inside the model that training has set; most are weights.",
    "partner": "The train sample most like a test sample; of classes, the nearest of the same label.",
    "percentage point": "The difference of two percentages: from 2 % to 5 % it is 3 points.",
    "regression": "Predicting a number instead of choosing a class.",
    "temperature": "One number that all scores are divided by to make a model more or less sure; no answer changes.",
    "test split": "Samples kept apart from training, on which the model is judged; the others are the train split.",
    "typical error": "The root mean squared error: how far a prediction is off, in the units of the target.",
    "underfit": "A model that already fails on the samples it was trained on.",
}
"""At most 25: whoever adds one takes another out."""


def word_card(name: str) -> Card | None:
    """What a word means, as a card; None for one that is not in the glossary.

    >>> card = word_card("Logit")
    >>> (card.id, card.meaning) if card else None
    ('logit', 'A raw score of a class, before scores are made into probabilities.')
    """
    known = {word.lower(): word for word in WORDS}
    word = known.get(name.lower())
    return None if word is None else Card(word, word, WORDS[word], formula="", source="")


# Every card.


OF_FINDINGS = tuple(
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
"""Each rule's own words, with the origin of its limits."""
ALL_CARDS: tuple[Card, ...] = (
    BOTTOM_LINE,
    *(card for entry in CATALOGUE for card in entry.cards),
    *OF_TWINS,
    *OF_FINDINGS,
)


# Finds the card of a number by whatever name a reader has for it: its path in the JSON, its key, its symbol.


# What a key says about the same number: its interval, its spread, its largest or total over layers.
FORMS = ("_ci95", "_std", "_skipped", "_max", "_sum", "_sigma", "_per_sample", "_centred")
# What the pages call a number, in small letters, where neither its key nor its title says so.
ALSO = {
    "twins": tuple(card.id for card in OF_TWINS),
    "bottom_line": ("bottom_line.level",),
    "bottom line": ("bottom_line.level",),
    "gap": ("gap.error_gap", "gap.loss_gap", "duality.gap"),
    "steepness": ("duality.sigma_g",),
    "σ_g": ("duality.sigma_g",),
    "reach": ("duality.sigma_w",),
    "σ_w": ("duality.sigma_w",),
    "t_g": ("duality.total_g",),
    "t_w": ("duality.total_g",),
    "t_h": ("duality.total_g", "flatness.trace"),
    "sharp": ("duality.sharp",),
    "flat": ("duality.sharp",),
    "fisher determinant": ("fisher.gamma",),
    "γ̂": ("fisher.gamma",),
    "γ": ("fisher.gamma_full",),
    "s": ("sensitivity.sharpness",),
    "s(θ)": ("sensitivity.sharpness",),
}


def find_cards(name: str) -> list[Card]:
    """The cards that a name means; several where measures share a key.

    A field without a card of its own gives its sentence, followed by the card of the number that it belongs to.

    >>> [card.id for card in find_cards("layers[0].duality.sigma_g")]
    ['duality.sigma_g']
    >>> [card.id for card in find_cards("network.flatness.kappa_max")]
    ['flatness.kappa_max', 'flatness.kappa']

    Layers and other members may go by their name, as in a policy:

    >>> [card.id for card in find_cards("layers.fc1.flatness.kappa")]
    ['flatness.kappa']

    So may a number that the pages call otherwise, in letters of any size:

    >>> [card.id for name in ("steepness", "MLS", "T_w") for card in find_cards(name)]
    ['duality.sigma_g', 'sensitivity.mls', 'duality.total_g']

    Steps on the way may be left out, where the first number on such a way is meant:

    >>> [card.id for card in find_cards("fisher.bound")]
    ['fisher.pac_bayes.bound']

    Words of the glossary are known, too, and stand before the numbers of that name:

    >>> [card.id for card in find_cards("Hessian")][0]
    'Hessian'
    """
    key = _key(name.strip())
    word = word_card(name.strip())
    found = [word] if word else []
    found += _cards_of(key) or _cards_of(_key(KNOWN_PATHS.without_members(name.strip()) or "")) or _cards_between(key)
    if not found:
        raise UsageError(
            f"{name}: is no number of the report{_closest(key)}; `gen-audit explain --all` prints them all."
        )
    return found


def _key(path: str) -> str:
    return path.removeprefix("network.").removeprefix("layers.")


def _cards_of(key: str) -> list[Card]:
    if key.lower() in ALSO:
        return [card for id in ALSO[key.lower()] for card in ALL_CARDS if card.id == id]
    found = _named(key, ALL_CARDS)
    if found:
        return found
    parts = _named(key, field_cards())
    wider = {parent for part in parts for parent in (part.id, *_wider(part.id))}
    of_fields = [part for part in parts if part.meaning]
    return of_fields + [card for card in ALL_CARDS if not wider.isdisjoint((card.id, *card.covers))]


def _cards_between(key: str) -> list[Card]:
    way = re.escape(key.lower()).replace(r"\.", r"\.(.+\.)?")
    first = next((card.id for card in (*ALL_CARDS, *field_cards()) if re.fullmatch(way, card.id.lower())), None)
    return [] if first is None else _cards_of(first)


def _named(key: str, cards: tuple[Card, ...]) -> list[Card]:
    key = key.lower()
    return [card for card in cards if card.title.lower() == key or f".{card.id.lower()}".endswith(f".{key}")]


def _wider(id: str) -> Iterator[str]:
    """What an id is a form or a part of: `fisher.gamma_std` of `fisher.gamma`, `x.sharp.share` of `x.sharp`.

    Every step of the way, nearest first.
    """
    for form in FORMS:
        if id.endswith(form):
            yield id.removesuffix(form)
            yield from _wider(id.removesuffix(form))
    if "." in id:
        yield id.rpartition(".")[0]
        yield from _wider(id.rpartition(".")[0])


def _closest(key: str) -> str:
    ids = [card.id for card in (*ALL_CARDS, *field_cards())]
    names = {name: id for id in reversed(ids) for name in (id, id.rpartition(".")[2])}
    close = [names[name] for name in difflib.get_close_matches(key, names, n=3, cutoff=0.6)]
    return f" (did you mean {' or '.join(dict.fromkeys(close))}?)" if close else ""


@cache
def field_cards() -> tuple[Card, ...]:
    """A small card for every field of a measure's block, with the sentence that the JSON Schema has for it."""
    holders = ("network.", "layers.*.", "bottom_line.", "twins.", *(f"{key}." for key in KEYS_OF_REPORT))
    inside = [place for holder in holders for place in KNOWN_PATHS.places if place.path.startswith(holder)]
    of_fields = [(_key(place.path.replace(".*", "")), place.says) for place in inside if not place.path.endswith("*")]
    cards = [Card(id, id.rpartition(".")[2], words, formula="", source="") for id, words in of_fields if "." in id]
    return tuple({card.id: card for card in cards}.values())


# A card as lines for a terminal.


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


# Definition cards for paper: grouped, with every work named once and numbered.


TITLES = {entry.key: entry.title for entry in CATALOGUE}
GROUPS = {"bottom_line": "The bottom line", **TITLES, "twins": "Beside its twins", "findings": "Findings"}
WORK = re.compile(r"^(?P<work>.{30,}?\(\d{4}\))(?:, (?P<place>.*))?$")

Group = tuple[str, list[tuple[int, str]], list[tuple[Card, str, str]]]  # heading, works, cards with limits and sources


def grouped(cards: Sequence[Card] = ALL_CARDS) -> Iterator[tuple[str, str, list[Card]]]:
    """Key, heading and cards of each section that has any, and of the findings."""
    for key, name in GROUPS.items():
        if own := [card for card in cards if card.id.startswith(f"{key}.")]:
            yield key, name, own


def short_cards(cards: Sequence[Card] = ALL_CARDS) -> Iterator[Group]:
    """The cards of each section; works that several cards cite stand once above them."""
    cited = Counter(work for card in cards if (work := _work(card)))
    numbers = {work: place for place, work in enumerate((work for work in cited if cited[work] > 1), start=1)}
    for key, name, own in grouped(cards):
        works = dict.fromkeys(work for card in own if (work := _work(card)) in numbers)
        if key in TITLES:
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
