"""Is the test split new to the model?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import label, sentence, some
from audit.measures.hygiene.block import Leak
from audit.measures.report import Report
from audit.report.numbers import number, percent

EVIDENCE = ("hygiene.leaked.copies", "hygiene.leaked.share", "hygiene.leaked.share_ci95", "hygiene.leaked.searched")


def find(report: Report) -> Observation | None:
    """Void, some copies, or none."""
    if report.hygiene is None:
        return None
    leak = report.hygiene.leaked
    if leak.void:
        return _void(report, leak)
    if leak.copies:
        return _some(report, leak)
    return None if report.hygiene.duplicates_across_splits else _none(report, leak)  # conflicting answers: another rule


def _void(report: Report, leak: Leak) -> Observation:
    return Observation(
        level="concern",
        title="The verdict is void: test samples are also in train",
        explanation=(
            f"{sentence(leak.why)}{'' if _says_count(leak) else f' {_counted(report, leak)}'} The gap on such a test "
            "split says nothing about new data."
        ),
        advice=(
            "Remove the copies, listed in the section on data hygiene, from one of the splits, or take a test split "
            "that was set aside before training; then run the audit again."
        ),
        evidence=(*EVIDENCE, "hygiene.leaked.void", "hygiene.duplicates_across_splits"),
    )


def _some(report: Report, leak: Leak) -> Observation:
    chance = (
        f" For {number(leak.coincidences)} of them that may be chance: other train samples share half of their values."
        if leak.coincidences
        else ""
    )
    return Observation(
        level="note" if leak.coincidences >= leak.copies else "watch",
        title=f"{some(leak.copies, 'test sample is', 'test samples are')} also in train",
        explanation=f"{_counted(report, leak)}{chance} That does not void the gap, which was measured with them.",
        advice="Look at the pairs in the section on data hygiene, and drop from test those that are real copies.",
        evidence=(*EVIDENCE, "hygiene.leaked.coincidences", "hygiene.duplicates_across_splits"),
    )


def _none(report: Report, leak: Leak) -> Observation:
    train, tests = report.data.train, number(report.data.test.samples)
    every = f"{number(train.samples)} of {number(train.total)}" if leak.searched < 1 else f"All {number(train.samples)}"
    return Observation(
        level="good" if leak.searched >= 1 else "note",
        title=f"No test sample was found {'in' if leak.searched >= 1 else 'among the searched part of'} train",
        explanation=(
            f"{every} train samples were compared with all {tests} test samples, number for number: no "
            f"input appears in both with the same {label(report)}. Changed copies, or the same person or scene in both "
            "splits, would not be seen this way."
        ),
        advice="Nothing to do here; if samples come in groups (persons, scenes, days), check that no group is in both.",
        evidence=EVIDENCE,
    )


def _says_count(leak: Leak) -> bool:
    return leak.why.startswith(f"{number(leak.copies)} of ")


def _counted(report: Report, leak: Leak) -> str:
    copies = "sample is" if leak.copies == 1 else "samples are"
    return (
        f"{number(leak.copies)} of {number(report.data.test.samples)} test {copies} in train with the same "
        f"{label(report)} ({percent(leak.share)})."
    )


RULE = FindingRule(
    id="leaked",
    title="Copies across the splits",
    meaning="Whether test samples are in train, so that the gap was not measured on new data.",
    conditions=(
        "concern: hygiene.leaked.void; watch: copies that are no coincidence, too few to void; note: only copies that "
        "may be coincidence, or none found in the part of train that was searched; good: none found"
    ),
    source="Counting; see the card hygiene.leaked.",
    origin="The limits of hygiene.leaked: void from 10 % on, or from 1 % where the copies move the gap. A convention.",
    cannot_tell="Leaks of other kinds: near copies, groups, or features that give the answer away.",
    find=find,
)
