"""In which layer is the gap most concentrated?"""

from __future__ import annotations

from audit.findings.conditions import gap_is_real
from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import capital, layer
from audit.findings.steep_shares import SHIFT, steep_shares, told
from audit.measures.report import Report

SHOWN = 4


def find(report: Report) -> Observation | None:
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


RULE = FindingRule(
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
    find=find,
    rests_on=("gap", "duality"),
)
