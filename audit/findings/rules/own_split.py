"""Did gen-audit have to make the test split itself?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.numbers import number


def find(report: Report) -> Observation | None:
    """Speaks where the folder had one split."""
    if not report.data.split_is_ours:
        return None
    return Observation(
        level="watch",
        title="The test split was cut off by gen-audit, so the model may have seen it",
        explanation=(
            f"The folder had one split, and {number(report.data.test.samples)} of its samples were held out for this "
            "audit. If the model was trained on the whole folder, the gap says nothing about new data."
        ),
        advice="Audit again with a folder that holds train and test as they were when the model was trained.",
        evidence=("data.split_is_ours", "data.test.samples"),
    )


RULE = FindingRule(
    id="own-split",
    title="A split of gen-audit's making",
    meaning="Whether the test samples were set aside before training, or only for the audit.",
    conditions="watch: data.split_is_ours",
    source="The layout of the data folder.",
    origin="A fact, without a limit.",
    cannot_tell="What the model was really trained on.",
    find=find,
)
