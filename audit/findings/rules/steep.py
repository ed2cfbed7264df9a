"""Does the gap sit in a few steep directions, or in very many flat ones?"""

from __future__ import annotations

from audit.findings.beside import came_of, tried, usual
from audit.findings.conditions import gap_is_real, labels_in_doubt, unfit_for_theory
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import capital, listed
from audit.findings.steep_shares import SHIFT, SteepShare, hidden_steep_shares, in_few, spread_out, told
from audit.measures.report import Report

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
