"""Does the gap sit in a few steep directions, or in very many flat ones?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from audit.findings.beside import came_of, tried, usual
from audit.findings.rule import (
    NO_LIMIT,
    FindingRule,
    Observation,
    capital,
    gap_is_real,
    labels_in_doubt,
    layer,
    listed,
    unfit_for_theory,
)
from audit.measures import LayerReport, Report
from audit.report.numbers import number, share

HALF = 0.5
FEWEST_CLASSES = 3
SHIFT = "Shares are of what the directions hold together; a shift common to all samples is not among it."


@dataclass(frozen=True)
class SteepShare:
    """What the steepest directions of one layer hold of the gap."""

    place: int  # of the layer in the report
    name: str
    steepest: int  # as many as there are classes; for regression those before the elbow
    directions: int
    share: float  # of the gap, in the steepest; may leave 0…1 where others count against it
    slack: float  # half the width of the 95 % interval of the share before the elbow: the fixed one has none of its own
    elbow: bool
    path: str  # of that share in the JSON


def steep_shares(report: Report) -> list[SteepShare]:
    """Every layer whose gap splits into shares, in the report's order."""
    found = (_steep_share(place, layer) for place, layer in enumerate(report.layers))
    return [part for part in found if part is not None]


def hidden_steep_shares(report: Report) -> list[SteepShare]:
    """The layers that steep and flat are judged by: all directions known, the output layer only if it is alone.

    None with two classes: there clean networks, too, had little of the gap in their two steepest directions.
    """
    if report.data.classes is not None and report.data.classes < FEWEST_CLASSES:
        return []
    known = [part for part in steep_shares(report) if _complete(report.layers[part.place])]
    return [part for part in known if part.place < len(report.layers) - 1] or known


def _steep_share(place: int, layer: LayerReport) -> SteepShare | None:
    block = layer.duality
    if block is None or block.sharp is None or block.directions is None or block.approximate:
        return None
    steepest, name = (block.fixed, "fixed") if block.fixed is not None else (block.sharp, "sharp")
    if steepest.share is None or steepest.count == 0:
        return None
    beyond = 0 if block.remainder is None else block.remainder.directions
    path = f"layers[{place}].duality.{name}.share"
    low, high = block.ci95.sharp_share or (-math.inf, math.inf)
    directions, elbow = block.directions + beyond, block.sharp.elbow
    return SteepShare(place, layer.name, steepest.count, directions, steepest.share, (high - low) / 2, elbow, path)


def _complete(layer: LayerReport) -> bool:
    return layer.duality is not None and bool(layer.duality.basis_complete)


def in_few(found: Sequence[SteepShare]) -> bool:
    """Whether every one of some layers clearly has more than half of the gap in its steepest directions."""
    return bool(found) and all(part.share - part.slack > HALF for part in found)


def spread_out(found: Sequence[SteepShare]) -> bool:
    """Whether every one of some layers clearly has less than half of it there."""
    return bool(found) and all(part.share + part.slack < HALF for part in found)


def told(part: SteepShare) -> str:
    """One layer in words.

    >>> told(SteepShare(0, "fc2", 10, 900, 0.14, 0.02, False, ""))
    'in layer fc2 the 10 steepest of 900 directions hold 14 % of the gap'
    >>> told(SteepShare(0, "fc2", 1, 900, 1.2, 0.1, True, ""))
    'in layer fc2 the steepest of 900 directions holds 120 % of the gap, and the others count against it'
    """
    which = f"the {number(part.steepest)} steepest" if part.steepest != 1 else "the steepest"
    verb = "holds" if part.steepest == 1 else "hold"
    beyond = (
        ", and the others count against it"
        if part.share > 1
        else ", so that they count against it"
        if part.share < 0
        else ""
    )
    what = f"{which} of {number(part.directions)} directions {verb} {share(part.share)} of the gap"
    return f"in layer {part.name} {what}{beyond}"


# What is said of them.


PAPER = "Feng & Tu, The activity-weight duality in feed forward neural networks (2022)"
UNFIT = (
    "Rest no change of the training on this: the source study is of networks that fit their train data and are at rest "
    "in a minimum, which this one is not."
)
MEANT = (
    "Each layer accounts for the whole gap by itself, and other layers may split it otherwise; a direction is a way of "
    f"changing the layer's weights, a steep one is where the loss reacts most. {SHIFT}"
)


def find_steep(report: Report) -> Observation | None:
    """Speaks where more than half of a real gap is in the few steepest directions."""
    found = hidden_steep_shares(report)
    if not gap_is_real(report) or not in_few(found):
        return None
    return Observation(
        level="note",
        title=f"In {_layers(found)} most of the gap lies in a few steep directions of the weights",
        explanation=(
            f"{_every(found)} {MEANT} In the source study this part of the gap was larger after training with small "
            f"steps or large batches; healthy networks have it, too. {_usual(report, found)}"
        ),
        advice=_advice(
            report,
            ("loud",),
            "If you train again, try a larger learning rate or smaller batches, which shrank this part in the source "
            "study, and compare both models on the same data.",
        ),
        evidence=_evidence(found),
    )


def find_flat(report: Report) -> Observation | None:
    """Speaks where less than half of a real gap is there, and wrong labels are not the nearer reading."""
    found = hidden_steep_shares(report)
    if not gap_is_real(report) or not spread_out(found) or labels_in_doubt(report):
        return None
    return Observation(
        level="note",
        title=f"In {_layers(found)} most of the gap lies in very many flat directions of the weights",
        explanation=(
            f"{_every(found)} {MEANT} In the source study this part of the gap was smaller with weight decay and with "
            f"a smaller initialisation{_labels(report)}. {_usual(report, found)}"
        ),
        advice=_advice(
            report,
            ("decay", "small-start"),
            "If you train again, try weight decay or a smaller initialisation, which shrank this part in the source "
            "study, and compare both models on the same data.",
        ),
        evidence=_evidence(found),
    )


def _usual(report: Report, found: list[SteepShare]) -> str:
    return usual(report, "duality.fixed.share", tuple(part.name for part in found))


def _advice(report: Report, kinds: tuple[str, ...], study: str) -> str:
    """What was tried here, before what a study says; nothing for a model that no study is about."""
    if unfit_for_theory(report):
        return UNFIT
    remedy = tried(report, *kinds)
    return study if remedy is None else capital(f"{came_of(report, remedy)}.")


def _labels(report: Report) -> str:
    if report.model.task == "regression":  # the study is of classifiers, and there are no labels to look at
        return ""
    looked_at = report.hygiene is not None and report.hygiene.suspected_mislabels.estimated_rate is not None
    seen = "of which there is no other sign here" if looked_at else "which could not be looked for here"
    return f", and larger with wrong labels, {seen}"


def _layers(found: list[SteepShare]) -> str:
    return f"{'layer' if len(found) == 1 else 'layers'} {listed([part.name for part in found])}"


def _every(found: list[SteepShare]) -> str:
    words = "; ".join(map(told, found[:3]))
    return f"{words[0].upper()}{words[1:]}."


def _evidence(found: list[SteepShare]) -> tuple[str, ...]:
    return tuple(path for part in found for path in (part.path, f"layers[{part.place}].duality.ci95.sharp_share"))


STEEP = FindingRule(
    id="steep-gap",
    title="Gap in few steep directions",
    meaning="Whether most of the gap sits in the few directions of the weights in which the loss is steepest.",
    conditions=(
        "note: the gap is above zero beyond chance, and each hidden layer whose directions are all known has more than "
        "half of it in its C steepest directions: duality.fixed.share (regression: sharp.share) above 0.5 by more than "
        "half the width of the 95 % interval of sharp.share"
    ),
    source=f"{PAPER}, section 4.1 and Fig. 3",
    origin=(
        "One half, a natural mark. Of networks trained for it on MNIST (784-30-30-10, five seeds; "
        "samples/finding_rates.json) it spoke for 5 of 5 with large batches, 5 of 5 with small steps, 5 of 5 on a "
        "quarter of the data, 5 of 5 with weight decay and 3 of 5 healthy ones: it cannot tell them apart. It "
        "describes and does not judge."
    ),
    cannot_tell="Whether another learning rate or batch size would help this model: that takes a second training run.",
    find=find_steep,
    rests_on=("gap", "duality"),
)

FLAT = FindingRule(
    id="flat-gap",
    title="Gap in many flat directions",
    meaning="Whether most of the gap sits outside the directions in which the loss is steepest.",
    conditions=(
        "note: as steep-gap, but below 0.5 by as much in each of these layers, and the train labels not in doubt"
    ),
    source=f"{PAPER}, section 4.2 and Fig. 4",
    origin=(
        "One half, a natural mark. Of networks trained for it (MNIST with 10, 5 and 3 digits, digits; five seeds; "
        "samples/finding_rates.json) it spoke for 0 of 55 networks with clean labels. It describes and does not "
        "judge; with two classes it is left out, since clean networks look alike there."
    ),
    cannot_tell="Whether weight decay would help this model; it is U-shaped, so that too much of it hurts.",
    find=find_flat,
    rests_on=("gap", "duality"),
)


# In which layer is the gap most concentrated?


SHOWN = 4


def find_gap_layers(report: Report) -> Observation | None:
    """Speaks where at least two layers can be compared: shares of one number of directions, that of the classes."""
    if report.model.task == "regression":
        return None
    found = sorted(steep_shares(report), key=lambda part: -part.share)
    if len(found) < 2 or not gap_is_real(report) or found[0].share <= 0:
        return None
    first, others = found[0], "; ".join(map(told, found[1:SHOWN]))
    return Observation(
        level="note",
        title=f"The gap is most concentrated in layer {first.name}",
        explanation=(
            f"{capital(told(first))}; {others}. Each layer "
            "accounts for the whole gap, by construction, so that none of them can be called its origin: what differs "
            f"is how few directions it takes. {SHIFT}"
        ),
        advice=(
            f"When you compare two models, look at {layer(first.name)} first; shares of different layers do not add up."
        ),
        evidence=tuple(part.path for part in found),
    )


GAP_LAYERS = FindingRule(
    id="gap-layers",
    title="Layers and the gap",
    meaning="In which layer the fewest directions of the weights account for the gap.",
    conditions="note: classes, a gap above zero beyond chance, and at least two layers with shares",
    source="Feng & Tu, The activity-weight duality in feed forward neural networks (2022), Eqs. 8–11",
    origin=NO_LIMIT,
    cannot_tell=(
        "Which layer is at fault. Shares change when neurons are rescaled against each other, and a wide layer has "
        "more directions to spread over."
    ),
    find=find_gap_layers,
    rests_on=("gap", "duality"),
)
