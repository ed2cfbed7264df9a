"""Can the numbers be trusted, and is the model where the theory looks: fitted, and at rest?"""

from __future__ import annotations

from audit.findings.rule import FOR_THEORY, FindingRule, Observation, listed, scores, some, unfit_for_theory, unit
from audit.measures import Report
from audit.measures.catalogue import CATALOGUE
from audit.measures.gap.block import FITTED
from audit.report.numbers import number, percent, share

# Can the numbers be trusted?


MEASURES = {entry.key: entry.called or entry.title.lower() for entry in CATALOGUE}
NEAR = 0.5  # of the tolerance


def find_trust(report: Report) -> Observation | None:
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


TRUST = FindingRule(
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
    find=find_trust,
)


# Is the model where the theory looks: fitted, and at rest?


WORDS = {
    "gradient-small": "the train samples' gradients in {weights} do not cancel: their mean is {value} of a typical one",
    "interpolation": "it answers {value} of its train {unit}s wrongly, more than the {limit} that counts as fitted",
}


def find_minimum(report: Report) -> Observation | None:
    """Speaks where the model is not at a minimum of its train loss, or does not fit its train data."""
    places = unfit_for_theory(report)
    if not places:
        return None
    reasons = "; and ".join(_reason(report, place) for place in places)
    return Observation(
        level="note",
        title=f"The model {_failing(report, places)}, so the theory behind flatness does not quite apply",
        explanation=(
            f"The source studies look at models that fit their train data and stopped moving; here {reasons}. That is "
            "no fault of the model. Flatness, Fisher information and the steep and flat parts of the gap are measured "
            "all the same, but what the studies read into them may not hold."
        ),
        advice=(
            "Rest nothing on flatness or Fisher information here. If the model was stopped early on purpose, leave it "
            "so: the gap and the data hygiene do not depend on it."
        ),
        evidence=tuple(f"checks[{place}].{key}" for place in places for key in ("status", "value", "tolerance")),
    )


def _failing(report: Report, places: list[int]) -> str:
    failed = {report.checks[place].id for place in places}
    if "gradient-small" not in failed:
        return "does not fit its train data"
    rest = "at rest in a minimum" + (" in its last dense layer" if report.plan.quick else "")
    return f"neither fits its train data nor is {rest}" if failed == set(FOR_THEORY) else f"is not {rest}"


def _reason(report: Report, place: int) -> str:
    check = report.checks[place]
    show = percent if check.id == "interpolation" else number
    weights = "the weights of its last dense layer, the only one looked at," if report.plan.quick else "the weights"
    words = {"value": show(check.value), "limit": show(check.tolerance), "unit": unit(report), "weights": weights}
    return WORDS[check.id].format(**words)


MINIMUM = FindingRule(
    id="not-at-minimum",
    title="Not at a minimum",
    meaning="Whether the model fits its train data and its train loss has stopped falling, as the theory assumes.",
    conditions=(
        f"note: the assumption gradient-small (0.1, or 2/√n) or interpolation ({share(FITTED)} wrong on train) does "
        "not hold"
    ),
    source="Assumptions of the papers on flatness, Fisher information and sensitivity, looked at on this model.",
    origin=(
        "Limits of the checks: at a minimum samples' gradients cancel but for about 1/√n of one; a tenth is a "
        "convention. It describes and does not judge."
    ),
    cannot_tell="Whether further training would make the model better or worse on unseen data.",
    find=find_minimum,
)
