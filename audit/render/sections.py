"""What the sections say in words about the measures: true for negative gaps, missing shares and failed checks alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from audit.findings.phrases import layer as called
from audit.measures.catalogue import CATALOGUE, KEYS_OF_LAYERS
from audit.render.cards import ALL_CARDS
from audit.render.summary import further
from audit.report.fields import Card
from audit.report.numbers import interval, number, share

SECTIONS = {entry.key: entry.title for entry in CATALOGUE}
CONTENTS = {
    **SECTIONS,
    "reference": "Beside past audits",
    "checks": "Self-checks and assumptions",
    "layers": "Applicability ledger",
    "comparison": "Comparison with the baseline",
    "evidence": "What this report can and cannot serve for",
    "cards": "Definition cards",
    "again": "How to get these numbers again",
    "sign-off": "Sign-off",
}
NO_INTERVAL = "no interval: too few pairs, or their sum is not surely above zero, so do not rest anything on this share"
STATUS = {"passed": "Passed", "failed": "Failed", "skipped": "Not possible here"}
HELD = {"passed": "Holds", "failed": "Does not hold", "skipped": "Cannot be judged"}
BOUNDS = {
    "prop-3.4": "Volume at the first layer, by sharpness",
    "prop-3.6": "Volume over all layers, by sharpness",
    "prop-3.8": "Sensitivity to the input, by sharpness",
    "prop-3.10": "Sensitivity over all layers, by sharpness",
    "prop-e.4": "Unit-free sensitivity, by adaptive sharpness",
    "eq-35": "Weighed sensitivity over all layers, by matrix-normalised sharpness",
}
CHAIN = (
    ("A", "the sensitivity itself"),
    ("B", "bounded sample by sample"),
    ("C", "averaged over samples"),
    ("D", "all parameters: the bound"),
)


def bound_name(bound: dict[str, Any]) -> str:
    """What a bound is called; which input it is about is said where that is not the model's own.

    >>> bound_name({"id": "prop-3.8", "about": "the input of f1, the first dense layer"})
    'Sensitivity to the input of f1, by sharpness'
    """
    name, about = BOUNDS.get(bound["id"], str(bound["id"])), str(bound["about"] or "")
    return name.replace("to the input,", f"to {_input(about)},") if _input(about) else name


def chain_steps(network: dict[str, Any]) -> list[tuple[str, float]]:
    """The steps from the sensitivity to its bound, named, with the input that they are about."""
    about = _input(str(network["bounds_input"] or ""))
    first = f"at {about}" if about else CHAIN[0][1]
    names = dict(CHAIN) | {"A": first}
    return [(f"{letter}: {words}", network["chain"][letter]) for letter, words in names.items()]


def _input(about: str) -> str:
    """The input of which layer is meant; empty for the model's own."""
    return about.split(",")[0] if about.startswith("the input of ") else ""


def contents(report: dict[str, Any], comparison: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Id and heading of every section that is drawn."""
    more = {"further": "Further findings"} if further(report) else {}
    absent = {"comparison": not comparison, "reference": not report.get("reference")}
    return [(key, name) for key, name in (more | CONTENTS).items() if not absent.get(key)]


def failed(report: dict[str, Any], section: str) -> list[dict[str, Any]]:
    """Checks and assumptions that a section rests on and that did not hold."""
    return [check for check in report["checks"] if check["status"] == "failed" and section in check["affects"]]


def decomposed(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Layers whose part in the gap was found."""
    return [layer for layer in report["layers"] if layer["duality"] and layer["duality"]["sharp"]]


def not_decomposed(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and reason of the other layers."""
    blocks = [(layer["name"], layer["duality"]) for layer in report["layers"]]
    return [
        (name, "not measured" if block is None else block["skipped"] or "not measured")
        for name, block in blocks
        if not (block and block["sharp"])
    ]


def pairs_sentence(report: dict[str, Any]) -> str:
    """What the gap over pairs is, and how it stands to the gap on the first page."""
    carriers, gap = report["network"]["duality"], report["gap"]["loss_gap"]
    found = carriers["gap"]
    direction = "more" if found > 0 else "less" if found < 0 else "neither more nor less"
    amount = f"{number(abs(found))} {direction}" if found else direction
    return (
        f"On average over {number(carriers['pairs'])} pairs a test sample costs {amount} than its train partner. This "
        f"gap over pairs need not equal the loss gap of {number(gap)}: it counts only those train samples that are "
        "nearest to a test sample."
    )


def split_sentence(layer: dict[str, Any]) -> str:
    """How much comes from the sharp directions, and whether there is a border at all."""
    block = layer["duality"]
    sharp, flat, ci = block["sharp"], block["flat"], block["ci95"]
    steepest = f"the {number(sharp['count'])} steepest directions" if sharp["count"] != 1 else "the steepest direction"
    if sharp["share"] is None:
        reason = f" ({block['share_skipped']})" if block["share_skipped"] else ""
        what = (
            f"{steepest} and all the others add {number(sharp['contribution'])} and {number(flat['contribution'])}; "
            f"shares would mislead here{reason}"
        )
    else:
        within = f"95 % interval {interval(ci['sharp_share'], 'share')}" if ci["sharp_share"] else NO_INTERVAL
        what = f"{share(sharp['share'])} ({within}) comes from {steepest}, {share(flat['share'])} from all the others"
    return f"{what}. {_border(sharp)}"


def split_summary(report: dict[str, Any], most: int = 6) -> str:
    """The split of the first layers in one line, for a comment."""
    carriers, layers = report["network"]["duality"], decomposed(report)
    if carriers is None:
        return "not part of this audit."
    if carriers["gap"] is None or not layers:
        return "no layer's part could be found; report.json says why."
    parts = []
    for name, block in ((layer["name"], layer["duality"]) for layer in layers[:most]):
        sharp, flat = block["sharp"], block["flat"]
        sizes = (sharp["contribution"], flat["contribution"])
        one, other = map(number, sizes) if sharp["share"] is None else map(share, (sharp["share"], flat["share"]))
        border = "" if sharp["elbow"] else ", no clear border"
        parts.append(f"{called(name)}: {one} sharp, {other} flat{border}")
    rest = [f"{number(len(layers) - most)} more layers in report.json"] if len(layers) > most else []
    return f"{'; '.join(parts + rest)}."


def checks_summary(report: dict[str, Any], kind: str) -> str:
    """How many checks, or assumptions, failed, and which, in one line."""
    own = [check for check in report["checks"] if check["kind"] == kind]
    broken = [check["title"] for check in own if check["status"] == "failed"]
    if not own:
        return "not part of this audit."
    if not broken:
        return f"none of {number(len(own))} failed." if kind == "check" else f"none of {number(len(own))} found broken."
    verdict = "failed" if kind == "check" else "not met"
    return f"{number(len(broken))} of {number(len(own))} {verdict}: {'; '.join(broken)}."


def _border(sharp: dict[str, Any]) -> str:
    if sharp["elbow"]:
        drop = "to zero" if sharp["ratio"] is None else f"by a factor of {number(sharp['ratio'])}"
        return f"Behind {'it' if sharp['count'] == 1 else 'them'} the steepness drops {drop}: a clear border."
    note = sharp["note"] or "there is no clear border"
    return f"{note[0].upper()}{note[1:]}."


def carriers_sentence(carriers: dict[str, Any], shown: int) -> str:
    """How much of the gap over pairs sits in the samples listed."""
    listed = len(carriers["samples"])
    part = carriers["samples_share"]
    if part is None:
        return "The gap over pairs is not positive, so no sample can be said to carry a share of it."
    more = ". More than all of it, since other test samples cost less than their partners" if part > 1 else ""
    which = f"the first {shown} of them are listed" if shown < listed else "all of them are listed"
    return (
        f"The {number(listed)} test samples that cost most above their partners, of {number(carriers['pairs'])} pairs, "
        f"make up {share(part)} of the gap over pairs{more}; {which}."
    )


def ledger(report: dict[str, Any]) -> Iterator[tuple[str, list[str], list[str]]]:
    """For every layer with weights: its name, what was measured of it, and what was not, with the reason."""
    for layer in report["layers"]:
        measured, missing = [], []
        for key in KEYS_OF_LAYERS:
            block = layer[key]
            reason = "not part of this audit" if block is None else block["skipped"]
            if key == "sensitivity" and block is not None:  # its sentence is about single numbers
                measured.append(SECTIONS[key])
                missing += [f"Some volumes: {reason}"] if reason else []
            elif reason:
                missing.append(f"{SECTIONS[key]}: {reason}")
            else:
                measured.append(SECTIONS[key])
        yield layer["name"], measured, missing
    for layer in report["passed_by"]:
        yield layer["name"], [], [layer["why"]]


def pac_bayes_sentence(bound: dict[str, Any], test_loss: float) -> str:
    """What the bound is worth here."""
    if bound["exceeded"]:
        verdict = (
            f"The measured test loss of {number(test_loss)} is above it: the theorem's assumptions do not hold here, "
            "and the bound must not be quoted as a promise"
        )
    elif bound["vacuous"]:
        verdict = "It exceeds the loss of guessing, so it says nothing about this model"
    else:
        verdict = f"The measured test loss of {number(test_loss)} is below it"
    return f"The bound is {number(bound['bound'])}. {verdict}."


def largest(rows: Sequence[dict[str, Any]], key: str, most: int) -> list[dict[str, Any]]:
    """The rows with the largest value of a key, largest first."""
    return sorted(rows, key=lambda row: row[key], reverse=True)[:most]


# Definition cards for paper: grouped, with every work named once and numbered.


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
