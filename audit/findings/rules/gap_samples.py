"""Do a few test samples carry most of the gap?"""

from __future__ import annotations

from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import label
from audit.measures.report import Report
from audit.report.numbers import number, percent, share

HALF = 0.5
FEW = 0.1  # of the pairs


def find(report: Report) -> Observation | None:
    """Speaks where the listed samples hold more than half of the gap over pairs."""
    block = report.network.duality
    if block is None or block.samples_share is None or block.samples_share <= HALF or not block.samples:
        return None
    listed = len(block.samples)
    if listed > FEW * block.pairs:
        return None
    more = " Others cost less than their partners." if block.samples_share > 1 else ""
    first = block.samples[0]
    mistakes = "large errors" if report.model.task == "regression" else "confident mistakes"
    return Observation(
        level="note",
        title=_title(listed, block.samples_share),
        explanation=(
            f"Of {number(block.pairs)} test samples, each compared with its most similar train sample, the "
            f"{number(listed)} costliest ({percent(listed / block.pairs)}) hold {share(block.samples_share)} of the "
            f"summed difference in loss, whose mean over all pairs is {number(block.gap)}.{more} A mean "
            f"loss can be ruled by a few {mistakes}."
        ),
        advice=(
            f"Look at them, beginning with test sample {first.index} beside train sample {first.partner}: "
            f"wrong test {label(report)}s, odd samples and true mistakes ask for different remedies."
        ),
        evidence=(
            "network.duality.samples_share",
            "network.duality.pairs",
            "network.duality.samples[0].index",
            "network.duality.samples[0].partner",
            "network.duality.samples[0].gap",
        ),
    )


def _title(listed: int, part: float) -> str:
    if part > 1:
        return f"{number(listed)} test samples cost more than the whole difference between test samples and partners"
    return f"{number(listed)} test samples make up {share(part)} of the summed differences to their partners"


RULE = FindingRule(
    id="gap-samples",
    title="Samples and the gap",
    meaning="Whether a few test samples account for most of the gap over pairs.",
    conditions=(
        "note: the costliest pairs that the report lists are at most a tenth of all pairs and hold more than half of a "
        "positive gap over pairs"
    ),
    source="Counting over pairs of a test sample and its nearest train sample; with classes, the nearest of its own.",
    origin=f"One half, a natural mark. {NO_LIMIT}",
    cannot_tell="Whether these samples have wrong labels or targets, are odd or simply hard.",
    find=find,
    rests_on=("gap",),
)
