"""Are the inputs larger than the first layer's weights suggest?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.doctor import WIDE
from audit.report.numbers import number


def find(report: Report) -> Observation | None:
    """Speaks where the trials leave open how the samples are to be scaled."""
    doctor = report.doctor
    if doctor is None or doctor.first_layer is None or doctor.preferred is not None or not doctor.out_of_range:
        return None
    first = doctor.first_layer
    return Observation(
        level="watch",
        title=f"The inputs may be larger than those that {first.name}, the first layer, was trained on",
        explanation=(
            f"Inputs go from {number(first.lowest)} to {number(first.highest)}, and the answers of its median unit "
            f"have a standard deviation of {number(first.spread)}. Networks trained on inputs of about unit size had "
            "at most about 17. No preprocessing that was tried is clearly the right one, so that this stays open."
        ),
        advice="Check how training scaled the inputs; pixels divided by 255 are --scale 0.00392157.",
        evidence=(
            *(f"doctor.first_layer.{key}" for key in ("name", "lowest", "highest", "spread")),
            "doctor.best_as_fed",
        ),
    )


RULE = FindingRule(
    id="input-range",
    title="Range of the inputs",
    meaning="Whether the first layer answers as if its inputs were out of range, such as pixels up to 255.",
    conditions=(
        f"watch: median over units of the standard deviation of w·x above {number(WIDE)}, and some preprocessing that "
        "was tried has a lower loss at its best temperature, though not by much"
    ),
    source="The scale of usual initial weights: answers of about unit size for inputs of unit size.",
    origin=(
        "A convention, checked on networks trained for it (samples/doctor_rates.json): at most 17 where inputs had "
        "about unit size; it spoke for 0 of 60 fed as in training."
    ),
    cannot_tell="A network trained on large inputs, which looks the same; the trials tell it apart where they can.",
    find=find,
)
