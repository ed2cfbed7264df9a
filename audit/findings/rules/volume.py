"""Does the network collapse or blow up small regions around the samples?"""

from __future__ import annotations

import math

from audit.findings.beside import usual
from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import scores
from audit.measures.report import Report
from audit.report.numbers import number, percent
from audit.report.report import Level

S = "network.sensitivity"
LARGEST = 700.0  # beyond it e^x leaves the range of numbers


def find(report: Report) -> Observation | None:
    """Collapsed on all samples, on some, or how far a small region is stretched."""
    block = report.network.sensitivity
    if block is None or not report.layers or report.model.outputs < 2:
        return None
    centred, dimensions = _space(report)
    flat, samples = getattr(block, f"rank_deficient_samples{centred}"), report.layers[0].samples
    if flat and samples:
        return _collapsed(report, flat, samples)
    log_volume = getattr(block, f"mean_log_volume{centred}")
    if log_volume is None or abs(log_volume / dimensions) > LARGEST:
        return None
    factor = math.exp(log_volume / dimensions)
    stretched, scale = factor > 1, "on how sure the model is" if centred else "on those of the targets"
    return Observation(
        level="note",
        title=f"Small changes of the input come out {'larger' if stretched else 'smaller'} in the {scores(report)}",
        explanation=(
            f"In {_typical(dimensions)} in which the answer can change, a small change of the input comes out "
            f"{number(factor)} times as large. The number depends on the units of the input and {scale}, so that "
            f"nobody can say from it alone whether it is high or low. {usual(report, f'mean_log_volume{centred}')}"
        ),
        advice="Use it to compare models that were trained on the same data to the same train loss; for nothing else.",
        evidence=(f"{S}.mean_log_volume{centred}", f"{S}.mean_log_volume{centred}_ci95", "model.outputs"),
    )


def _space(report: Report) -> tuple[str, int]:
    """Which volume is about the answer, and its dimensions: a shift of all scores changes targets, but no class."""
    outputs = report.model.outputs
    return ("", outputs) if report.model.task == "regression" else ("_centred", outputs - 1)


def _typical(dimensions: int) -> str:
    return "the one direction" if dimensions == 1 else f"a typical one of the {number(dimensions)} directions"


def _collapsed(report: Report, flat: int, samples: int) -> Observation:
    centred, dimensions = _space(report)
    everywhere = flat >= samples
    narrow = [layer.name for layer in report.layers if min(layer.in_features, layer.out_features) < dimensions]
    lost = "classes then cannot be told apart" if centred else "targets then only change together"
    level: Level = "watch" if everywhere and not narrow else "note"
    which = "all" if everywhere else f"{percent(flat / samples)} of the"
    built = (
        f" Layer {narrow[0]} has fewer inputs or outputs than that, so the architecture itself allows no more."
        if narrow
        else ""
    )
    return Observation(
        level=level,
        title=f"Around {which} train samples the answer cannot move in every direction",
        explanation=(
            f"On {number(flat)} of {number(samples)} train samples a small change of the input reaches fewer than the "
            f"{number(dimensions)} directions in which the {scores(report)} could differ: the local volume is zero "
            f"there.{built} Some {lost} by small changes, which may be just what the model has learnt."
        ),
        advice=(
            "Look for units that never act and for classes that the model never answers; both can look like this."
            if centred
            else "Look for units that never act and for targets that follow from each other; both can look like this."
        ),
        evidence=(f"{S}.rank_deficient_samples{centred}", f"{S}.mean_rank", "layers[0].samples", "model.outputs"),
    )


RULE = FindingRule(
    id="volume",
    title="Local volume",
    meaning="Whether the network collapses, shrinks or stretches small regions around the train samples.",
    conditions=(
        "watch: on every train sample the centred scores' Jacobian has a rank below C−1 though each measured layer is "
        "wide enough; note: on some; else, as a note, the mean stretch e^(mean_log_volume_centred / (C−1)). "
        "Regression: the scores as they are, with their number in place of C−1"
    ),
    source="A simple connection from loss flatness to compressed representations in neural networks (2024), Eq. 7",
    origin=f"Rank is counted, not judged. For the stretch: {NO_LIMIT[0].lower()}{NO_LIMIT[1:]}",
    cannot_tell="Whether a compressed representation is good for unseen data: the source study finds both.",
    find=find,
    rests_on=("sensitivity",),
)
