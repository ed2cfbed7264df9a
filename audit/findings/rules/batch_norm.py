"""Does at the first BatchNorm arrive what its statistics were taken of?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.doctor import SHIFTED, WIDENED
from audit.report.numbers import number


def find(report: Report) -> Observation | None:
    """Speaks where no other preprocessing explains it."""
    doctor = report.doctor
    if doctor is None or doctor.preferred is not None or doctor.odd_norm is None:
        return None
    place = doctor.odd_norm
    norm = doctor.batch_norms[place]
    return Observation(
        level="watch",
        title=f"What arrives at {norm.name}, the first BatchNorm, is not what its statistics were taken of",
        explanation=(
            f"In its median channel, the mean over train samples is {number(norm.shift)} standard deviations away from "
            f"the one in the file, and the standard deviation is {number(norm.spread)} times the file's. Train samples "
            "fed as in training have those of the file, or nearly so. This suggests another scaling of the inputs, "
            "other data, or statistics that were not kept up to date."
        ),
        advice=(
            "Check --scale, --mean, --std and --channels against the training code, and that the folder is the data "
            "that the model was trained on."
        ),
        evidence=tuple(f"doctor.batch_norms[{place}].{key}" for key in ("name", "shift", "spread")),
    )


RULE = FindingRule(
    id="batch-norm",
    title="BatchNorm statistics",
    meaning="Whether the inputs of the first BatchNorm have the mean and spread that the file has kept from training.",
    conditions=(
        f"watch: median over channels of the distance between the means above {number(SHIFTED)} standard deviations of "
        f"the file, or of the ratio of standard deviations beyond a factor of {number(WIDENED)}"
    ),
    source="Ioffe & Szegedy (2015): the statistics in the file are running means over training.",
    origin=(
        "Conventions, checked on networks trained for it (samples/doctor_rates.json): of 30 with a BatchNorm, fed as "
        "in training, none was beyond them (distances up to 0.37, ratios from 0.97 to 1.06), and 147 of 162 fed "
        "otherwise were."
    ),
    cannot_tell="Why they differ. A BatchNorm that an exporter has merged into other weights is not seen.",
    find=find,
)
