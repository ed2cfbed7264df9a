"""Is test like train? Asked of twins that have seen neither the one nor the other."""

from __future__ import annotations

from audit.findings.beside import level_of
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import sentence
from audit.measures.report import Report
from audit.report.twins import HeldOut

EVIDENCE = ("twins.held_out.held_out", "twins.held_out.test", "twins.held_out.difference", "twins.held_out.ci95")


def find(report: Report) -> Observation | None:
    """Speaks wherever twins were asked."""
    found = None if report.twins is None else report.twins.held_out
    if found is None or found.held_out is None or found.test is None or found.twins == 0:
        return None
    if found.verdict == "shifted":
        return _shifted(report, found)
    if found.verdict == "easier":
        return _easier(report, found)
    if found.verdict == "cannot tell":
        return _open(report, found)
    return Observation(
        level="good",
        title="The test samples are like the train samples",
        explanation=f"{_measured(report, found)} That is no more than chance explains.",
        advice="Nothing to do here; whether both are like what the model will meet in use is another question.",
        evidence=EVIDENCE,
    )


def _shifted(report: Report, found: HeldOut) -> Observation:
    return Observation(
        level="concern",
        title="The test samples are unlike the train samples, and harder",
        explanation=(
            f"{_measured(report, found)} Chance does not explain that: the two splits come from different sources, or "
            "one was prepared in another way. The gap is then partly the change of the data, not the model's."
        ),
        advice=(
            "Compare how both splits were collected and prepared; if test is what the model will meet, train on data "
            "like it."
        ),
        evidence=EVIDENCE,
    )


def _easier(report: Report, found: HeldOut) -> Observation:
    return Observation(
        level="watch",
        title="The test samples are easier than train samples that were not seen",
        explanation=(
            f"{_measured(report, found)} Chance does not explain that: test is easier, or some of it is in train, or "
            "train labels are wrong. The test error is then better than what new samples like train will bring."
        ),
        advice="Look for copies of test samples in train, and for how the test split was chosen.",
        evidence=EVIDENCE,
    )


def _open(report: Report, found: HeldOut) -> Observation:
    return Observation(
        level="note",
        title="Whether test is like train cannot be told",
        explanation=f"{_measured(report, found)} {sentence(found.why or '')}",
        advice="Settle the doubtful train labels first; then make the twins again.",
        evidence=EVIDENCE,
    )


def _measured(report: Report, found: HeldOut) -> str:
    what = "have a loss of" if report.model.task == "regression" else "are wrong on"
    return (
        f"{found.twins} networks of this architecture, trained on one half of the train samples, {what} "
        f"{level_of(report, found.held_out or 0)} of the other half and {level_of(report, found.test or 0)} of test."
    )


RULE = FindingRule(
    id="shifted",
    title="Test beside train",
    meaning="Whether test samples are like train samples, by networks that have seen neither.",
    conditions=(
        "with twins on a half of the train samples: concern: worse on test than on the half they have not seen, beyond "
        "chance (0.1 %) and by more than a tenth; watch: better by as much; note: better, but doubtful train labels "
        "account for it; good: neither"
    ),
    source="Counting: the same networks on two sets of samples that none of them has seen.",
    origin="0.1 % and a tenth are conventions; how often they are right on networks of known faults was not counted.",
    cannot_tell="Whether both splits are like what the model will meet in use.",
    find=find,
)
