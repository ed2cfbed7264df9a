"""Which kind of training does the inside of the model look like?"""

from __future__ import annotations

from audit.findings.beside import TRIED, came_of, how_made, trained, tried
from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.numbers import number, share
from audit.report.twins import Likeness, Twins

RELIABLE = 0.75  # share of the twins told to be of a kind that must be of it
SURE = 0.8  # probability of the kind, from which on a person should look
FAULTS = ("quiet", "large-start", "small-start", "wrong-labels", "loud", "decay")
EVIDENCE = ("twins.likeness.kind", "twins.likeness.sureness", "twins.likeness.hit_rate", "twins.likeness.hit_rate_ci95")


def find(report: Report) -> Observation | None:
    """Speaks where the model resembles one kind, or none at all."""
    twins = report.twins
    found = None if twins is None else twins.likeness
    if twins is None or found is None or found.skipped or found.hit_rate is None:
        return None
    if found.far:
        return _unlike(twins, found)
    if found.kind is None:
        return None
    return _plain(twins, found) if found.kind == "plain" else _of_kind(report, twins, found)


def _of_kind(report: Report, twins: Twins, found: Likeness) -> Observation:
    reliable = (found.hit_rate_of_kind or 0.0) >= RELIABLE and (found.sureness or 0.0) >= SURE
    kind = found.kind or ""
    return Observation(
        level="watch" if reliable and kind in FAULTS else "note",
        title=f"From inside it resembles networks trained {trained(kind)}",
        explanation=(
            f"By its inner numbers alone, the test error left aside, it is nearest to the twins that were trained "
            f"{trained(kind)}, of those that were made; next is {found.next or 'none'}. {_hits(found)} The others were "
            f"trained {how_made(twins)}. It is a likeness, no proof of how the model was trained."
        ),
        advice=_advice(report, kind),
        evidence=EVIDENCE,
    )


def _advice(report: Report, kind: str) -> str:
    """What its owner can look at; where the same was tried as a remedy, what came of it."""
    remedy = tried(report, kind)
    if kind == "decay" and remedy is not None:
        return f"If weight decay was not meant to be so strong, look at it: {came_of(report, remedy)}."
    other = {"quiet": "loud", "large-start": "small-start"}.get(kind)
    remedy = None if other is None else tried(report, other)
    look = {
        "quiet": "Look at learning rate and batch size",
        "large-start": "Look at how the weights are initialised, and at the scale of the inputs",
        "small-start": "Look at how the weights are initialised",
        "wrong-labels": "Look at the train labels",
        "decay": "Look at the weight decay",
        "loud": "Look at learning rate and batch size",
    }.get(kind, f"Look at {TRIED.get(kind, 'this part of the training')}")
    return f"{look}{'' if remedy is None else f'; {came_of(report, remedy)}'}."


def _plain(twins: Twins, found: Likeness) -> Observation:
    inside = f"{number(twins.inside)} of {number(len(twins.numbers))}"
    return Observation(
        level="good",
        title="From inside it looks like an ordinary training",
        explanation=(
            f"{inside} of its inner numbers lie where networks trained anew {how_made(twins)} have theirs, and of all "
            f"kinds that were made it is nearest to these. {_hits(found)}"
        ),
        advice="Nothing to do here; faults that were not made as twins would not be seen this way.",
        evidence=EVIDENCE[:1] + EVIDENCE[2:],
    )


def _unlike(twins: Twins, found: Likeness) -> Observation:
    inside = f"{number(twins.inside)} of {number(len(twins.numbers))}"
    return Observation(
        level="watch" if 2 * twins.inside < len(twins.numbers) else "note",
        title="From inside it resembles none of the networks that were made",
        explanation=(
            f"It lies farther from every kind than these lie from their own; {inside} of its inner numbers lie inside "
            f"their band. {_hits(found)} Its training is likely unlike the recipe used here ({twins.recipe})."
        ),
        advice="Give the recipe that it was trained with (--recipe), so that the networks beside it are its like.",
        evidence=("twins.likeness.far", *EVIDENCE[2:]),
    )


def _hits(found: Likeness) -> str:
    ends = (
        "" if found.hit_rate_ci95 is None else f" ({share(found.hit_rate_ci95[0])} to {share(found.hit_rate_ci95[1])})"
    )
    return f"Each of these networks was told its kind by the others, and {share(found.hit_rate)}{ends} came out right."


RULE = FindingRule(
    id="resembles",
    title="Likeness to a kind of training",
    meaning="Whether the model resembles one kind of the networks that were trained anew, by its inner numbers alone.",
    conditions=(
        "with twins, and a kind of probability 0.5 or more: watch: a kind that is a fault or a strong change, told "
        f"with probability {number(SURE)} or more, and {share(RELIABLE)} of the twins told to be of it are, or farther "
        "from all kinds than twins from their own, with most numbers outside their band; note: else, or far from all "
        "with most inside; good: the plain kind"
    ),
    source="A linear discriminant with shrunken correlations (Schäfer & Strimmer 2005), tried twin by twin.",
    origin="0.8 and three quarters are conventions; the hit rate is counted on this very problem.",
    cannot_tell="How the model was really trained, nor anything of kinds that were not made.",
    find=find,
    rests_on=("duality", "flatness"),
)
