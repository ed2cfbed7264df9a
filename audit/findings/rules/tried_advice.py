"""Advice that was tried: what other trainings did to the test error of this architecture on these data."""

from __future__ import annotations

from audit.findings.beside import TRIED, came_of, effect
from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import listed
from audit.measures.report import Report
from audit.report.twins import Remedy


def find(report: Report) -> Observation | None:
    """Speaks wherever a change of the training was tried."""
    tried = [] if report.twins is None else report.twins.remedies
    if not tried:
        return None
    helped = [(place, remedy) for place, remedy in enumerate(tried) if remedy.verdict == "helps"]
    return _helped(report, helped, tried) if helped else _nothing(report, tried)


def _helped(report: Report, helped: list[tuple[int, Remedy]], tried: list[Remedy]) -> Observation:
    place, best = helped[0]
    others = [_called(remedy) for remedy in tried if remedy.verdict != "helps"]
    rest = f" Also tried, without a gain that could be shown: {listed(others, 8)}." if others else ""
    return Observation(
        level="note",
        title=f"Tried here and found to help: {listed([_called(remedy) for _, remedy in helped], 4)}",
        explanation=(
            f"Networks of this architecture were trained on these data as usual and with one change at a time; "
            f"{came_of(report, best)}.{rest} Each gain is of these networks on these test samples, by which it was "
            "chosen, too."
        ),
        advice=f"Try {_called(best)} when you train again ({best.change}), and compare on new samples.",
        evidence=(f"twins.remedies[{place}].effect", f"twins.remedies[{place}].ci95"),
    )


def _nothing(report: Report, tried: list[Remedy]) -> Observation:
    best = tried[0]
    return Observation(
        level="note",
        title="Nothing that was tried in training is shown to help",
        explanation=(
            f"Networks of this architecture were trained on these data as usual and with one change at a time: "
            f"{listed([_called(remedy) for remedy in tried], 8)}. The best of these changed the test error by "
            f"{effect(report, best.effect)}, which chance among so many explains."
        ),
        advice="Do not expect much of another recipe; look at the data and the architecture first.",
        evidence=("twins.remedies[0].effect", "twins.remedies[0].ci95"),
    )


def _called(remedy: Remedy) -> str:
    return TRIED.get(remedy.kind, remedy.kind)


RULE = FindingRule(
    id="tried-advice",
    title="Advice that was tried",
    meaning="Whether changes of the training that were tried on networks of this architecture helped.",
    conditions="note, with twins of a kind that an owner could train by",
    source="Counting: the same architecture, data and train loss, with one change at a time.",
    origin=(
        "A change helps where its 95 % interval, widened for all changes that were tried, lies below zero: a natural "
        "limit."
    ),
    cannot_tell="What the same change does to another recipe or another size of the network.",
    find=find,
)
