"""Is the test split a validation split by its own name?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.numbers import number


def find(report: Report) -> Observation | None:
    """Speaks where the folder names its second split so."""
    if not report.data.test_is_validation:
        return None
    return Observation(
        level="watch",
        title="The test split is a validation split, so the model may have been chosen by it",
        explanation=(
            f"The folder has no test split; {number(report.data.test.samples)} samples of a split that is named "
            "validation, or dev, take its place. Training is often stopped, and settings are often chosen, by how a "
            "model does on that split. It then looks better than it will on new data, by an amount that nobody knows."
        ),
        advice="Audit again with samples that were used neither to train nor to choose the model, as test.",
        evidence=("data.test_is_validation", "data.test.samples"),
    )


RULE = FindingRule(
    id="validation-split",
    title="A validation split as test",
    meaning="Whether the samples that stand for new data are, by their name, those that the model was chosen by.",
    conditions="watch: the folder has a train split and one named val, valid, validation or dev, but none named test",
    source="The layout of the data folder.",
    origin="A fact about names, without a limit.",
    cannot_tell="Whether the model was really chosen by it, or by a split that is named test.",
    find=find,
)
