"""Is the model where the theory looks: fitted, and at rest?"""

from __future__ import annotations

from audit.findings.conditions import FOR_THEORY, unfit_for_theory
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import unit
from audit.measures.gap.block import FITTED
from audit.measures.report import Report
from audit.report.numbers import number, percent, share

WORDS = {
    "gradient-small": "the train samples still pull the weights in a common direction, with {value} of a typical pull",
    "interpolation": "it answers {value} of its train {unit}s wrongly, more than the {limit} that counts as fitted",
}


def find(report: Report) -> Observation | None:
    """Speaks where the model is not at a minimum of its train loss, or does not fit its train data."""
    places = unfit_for_theory(report)
    if not places:
        return None
    reasons = "; and ".join(_reason(report, place) for place in places)
    return Observation(
        level="note",
        title=f"The model {_failing(report, places)}, so the theory behind flatness does not quite apply",
        explanation=(
            f"The source studies look at models that fit their train data and stopped moving; here {reasons}. That is "
            "no fault of the model. Flatness, Fisher information and the steep and flat parts of the gap are measured "
            "all the same, but what the studies read into them may not hold."
        ),
        advice=(
            "Rest nothing on flatness or Fisher information here. If the model was stopped early on purpose, leave it "
            "so: the gap and the data hygiene do not depend on it."
        ),
        evidence=tuple(f"checks[{place}].{key}" for place in places for key in ("status", "value", "tolerance")),
    )


def _failing(report: Report, places: list[int]) -> str:
    failed = {report.checks[place].id for place in places}
    if failed == set(FOR_THEORY):
        return "neither fits its train data nor is at rest in a minimum"
    return "does not fit its train data" if "interpolation" in failed else "is not at rest in a minimum"


def _reason(report: Report, place: int) -> str:
    check = report.checks[place]
    show = percent if check.id == "interpolation" else number
    return WORDS[check.id].format(value=show(check.value), limit=show(check.tolerance), unit=unit(report))


RULE = FindingRule(
    id="not-at-minimum",
    title="Not at a minimum",
    meaning="Whether the model fits its train data and its train loss has stopped falling, as the theory assumes.",
    conditions=(
        f"note: the assumption gradient-small (0.1, or 2/√n) or interpolation ({share(FITTED)} wrong on train) does "
        "not hold"
    ),
    source="Assumptions of the papers on flatness, Fisher information and sensitivity, looked at on this model.",
    origin=(
        "Limits of the checks: at a minimum samples' pulls cancel but for about 1/√n of one; a tenth is a convention. "
        "It describes and does not judge."
    ),
    cannot_tell="Whether further training would make the model better or worse on unseen data.",
    find=find,
)
