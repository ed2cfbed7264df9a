"""Are test samples almost train samples?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import some, within
from audit.measures.report import Report
from audit.report.numbers import percent


def find(report: Report) -> Observation | None:
    """Speaks where some test sample is closer to train than chance would bring it."""
    if report.hygiene is None or not report.hygiene.near_duplicates:
        return None
    count, near = report.hygiene.near_duplicates, report.hygiene.near
    part, usual, bounds = count / max(report.data.test.samples, 1), near.within_train, near.within_train_ci95
    natural = usual is not None and part <= max(usual, bounds[1] if bounds else usual)
    twins = f"{percent(usual)} of the samples{within(bounds, 'percent')} have such a near twin"
    beside = "" if usual is None else f" Within train, {twins}."
    reading = (
        "That is no more than within train beyond chance, and no evidence of copies: dense groups of similar samples, "
        "or data that repeat by nature, bring it about, too."
        if natural
        else "That is consistent with copies that were compressed, rounded or cut, or with bursts of similar samples."
    )
    return Observation(
        level="note" if natural else "watch",
        title=(
            f"{some(count, 'test sample lies', 'test samples lie')} unusually close to a train sample"
            if natural
            else f"{some(count, 'test sample is', 'test samples are')} almost a copy of a train sample"
        ),
        explanation=(
            f"{percent(part)} of the test samples lie far closer to one train sample than chance would bring them."
            f"{beside} {reading}"
        ),
        advice="Look at the pairs in the section on data hygiene; drop from test what is the same thing twice.",
        evidence=(
            "hygiene.near_duplicates",
            "hygiene.near.within_train",
            "hygiene.near.within_train_ci95",
            "hygiene.near.threshold",
            "data.test.samples",
        ),
    )


RULE = FindingRule(
    id="near-copies",
    title="Near copies across the splits",
    meaning="Whether test samples are almost, but not quite, train samples.",
    conditions=(
        "at least one near duplicate; watch where they are more common in test than the upper end of the 95 % interval "
        "of their share within train, else note"
    ),
    source="Nearest-neighbour distances; see the card hygiene.near_duplicates.",
    origin="The threshold of hygiene.near_duplicates: with fresh test samples 0.05 of them would be called so in all.",
    cannot_tell="Shifted, mirrored or cropped copies are not seen.",
    find=find,
)
