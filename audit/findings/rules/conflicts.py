"""Do equal inputs have different answers?"""

from __future__ import annotations

from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import label, some
from audit.measures.report import Report


def find(report: Report) -> Observation | None:
    """Speaks where an input is in train with two answers."""
    if report.hygiene is None or not report.hygiene.conflicting_labels:
        return None
    total, found, name = report.hygiene.conflicting_labels, report.hygiene.conflicts, label(report)
    return Observation(
        level="note",
        title=f"{some(total, 'sample has', 'samples have')} a twin in train with another {name}",
        explanation=(
            f"The inputs of {some(found.within_train, 'train sample')} and {some(found.across_splits, 'test sample')} "
            f"are in train with another {name}, so no model can be right on all of them. Either a {name} is wrong, or "
            "the input does not hold the answer."
        ),
        advice=(
            f"Look at the samples in the section on data hygiene; settle which {name} is right or add what sets them "
            "apart."
        ),
        evidence=(
            "hygiene.conflicting_labels",
            "hygiene.conflicts.within_train",
            "hygiene.conflicts.across_splits",
            "hygiene.conflicts.train",
            "hygiene.conflicts.test",
        ),
    )


RULE = FindingRule(
    id="conflicting-answers",
    title="Conflicting answers",
    meaning="Whether the same input appears in train with different labels or targets.",
    conditions="note: at least one such sample",
    source="Counting; see the card hygiene.conflicting_labels.",
    origin=NO_LIMIT,
    cannot_tell="Which of the answers is wrong.",
    find=find,
)
