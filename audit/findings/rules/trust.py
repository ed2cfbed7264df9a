"""Can the numbers be trusted?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import listed, scores, some
from audit.measures.catalogue import CATALOGUE
from audit.measures.report import Report
from audit.report.numbers import number

MEASURES = {entry.key: entry.called or entry.title.lower() for entry in CATALOGUE}
NEAR = 0.5  # of the tolerance


def find(report: Report) -> Observation | None:
    """Failed self-checks, an agreement that is only just good enough, or all well."""
    places = [place for place, check in enumerate(report.checks) if check.kind == "check"]
    failed = [place for place in places if report.checks[place].status == "failed"]
    passed = [place for place in places if report.checks[place].status == "passed"]
    if failed:
        return _failed(report, failed)
    parity = report.model.parity
    if parity is not None and parity.max_abs_diff > NEAR * parity.tolerance:
        return _close(report)
    return _passed(report, passed) if passed else None


def _failed(report: Report, places: list[int]) -> Observation:
    checks = [report.checks[place] for place in places]
    touched = dict.fromkeys(block for check in checks for block in check.affects)
    names = listed([check.title for check in checks], most=4, longest=100)
    parts = listed([MEASURES.get(block, block) for block in touched], most=6)
    return Observation(
        level="concern",
        title=f"{some(len(checks), 'self-check')} failed: some numbers are not to be trusted",
        explanation=(
            f"Failed: {names}. The numbers about {parts} rest on that, so no finding below is drawn from them. This is "
            "about the arithmetic on this model, not about its quality."
        ),
        advice=(
            "Run again with --precision float64; if the check still fails, report it with the model, and use none of "
            "the numbers named above."
        ),
        evidence=tuple(f"checks[{place}].{key}" for place in places for key in ("status", "value", "tolerance")),
    )


def _close(report: Report) -> Observation:
    parity = report.model.parity
    assert parity is not None
    return Observation(
        level="note",
        title=f"The converted network agrees with {parity.against} only just well enough",
        explanation=(
            f"On {some(parity.samples, 'sample')} the {scores(report)} {_verb(report, 'differ')} by up to "
            f"{number(parity.max_abs_diff)}; beyond {number(parity.tolerance)} the audit would have stopped. Every "
            "number is about the converted network."
        ),
        advice="Compare the predictions of both on samples that matter to you before you rely on small differences.",
        evidence=("model.parity.max_abs_diff", "model.parity.tolerance", "model.parity.samples"),
    )


def _passed(report: Report, places: list[int]) -> Observation:
    parity = report.model.parity
    agreed = (
        ""
        if parity is None
        else f" Its {scores(report)} {_verb(report, 'agree')} with {parity.against} to "
        f"{number(parity.max_abs_diff)} on {some(parity.samples, 'sample')}."
    )
    return Observation(
        level="good",
        title=f"{some(len(places), 'self-check')} passed on this model, none failed",
        explanation=(
            "Identities and bounds that must hold for any network were tried on this one, and they held within "
            f"rounding.{agreed} That speaks for the arithmetic, not for the model."
        ),
        advice="Nothing to do; the section on self-checks lists each with its value and its tolerance.",
        evidence=(
            *(() if parity is None else ("model.parity.max_abs_diff", "model.parity.tolerance")),
            *(f"checks[{place}].status" for place in places),
        ),
    )


def _verb(report: Report, verb: str) -> str:
    return f"{verb}s" if report.model.outputs == 1 else verb


RULE = FindingRule(
    id="trust",
    title="Trust in the numbers",
    meaning="Whether what must hold for every network also held when it was tried on this one.",
    conditions=(
        "concern: a self-check failed; note: the scores differ from the file's own runtime by more than half of the "
        "tolerance; good: no check failed"
    ),
    source="Identities and bounds of the papers, tried on the audited model.",
    origin="The tolerances stand beside each check. Half of the parity's tolerance is a convention: it only describes.",
    cannot_tell="Whether the model is good: a bad model passes, too.",
    find=find,
)
