"""From numbers to sentences: rules that read a finished report, each with its source, its conditions and its advice.

`rule.py` says what a rule is, `rules/` holds them in the order of their weight, those that ask the same question in one
file; here all of them look at a report, what they say is put in order, and what stays open is named. Pure functions of
a `Report`: no torch, no file, no chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from audit.findings.bottom_line import draw_bottom_line
from audit.findings.rule import (
    FindingRule,
    Observation,
    above_zero,
    below_zero,
    broken_blocks,
    label,
    listed,
    sentence,
    some,
    unit,
    why_no_gap,
)
from audit.findings.rules import RULES
from audit.measures import Report
from audit.measures.catalogue import CATALOGUE
from audit.report import LEVELS, Finding, NotJudged
from audit.report.numbers import number
from audit.report.paths import value_at

FIRST_PAGE = 6  # findings; the others follow behind the contents
NOTES = 3  # how many of them may be notes where there is something good
NOT_PART = "It was not part of this audit."
MANY = 6  # reasons of layers that are told apart


def add_findings(report: Report) -> Report:
    """The report with its findings, heaviest first, with what could not be judged, and with its bottom line.

    Order: concern, watch, note, good; within a level the order of `RULES`, but that of what is to be watched, what
    twins have shown stands before what one model alone shows. Adding them twice changes nothing.
    """
    broken = broken_blocks(report)
    observed = [(rule, rule.find(report)) for rule in RULES if broken.isdisjoint(rule.rests_on)]
    findings = [_finding(report, rule, seen) for rule, seen in observed if seen is not None]
    findings.sort(key=lambda finding: (LEVELS.index(finding.level), not _settled(finding)))
    shown = {finding.id for finding in first_page(findings)}
    marked = [replace(finding, first_page=finding.id in shown) for finding in findings]
    judged = replace(report, findings=marked, not_judged=not_judged(report))
    return replace(judged, bottom_line=draw_bottom_line(judged))


def _settled(finding: Finding) -> bool:
    return finding.level == "watch" and any(path.startswith("twins.") for path in finding.evidence)


def first_page(findings: Sequence[Finding]) -> list[Finding]:
    """The few findings that a reader sees first, in order: at most `FIRST_PAGE`. All others stay in the JSON.

    Every concern and watch, as far as there is room; then the three heaviest notes; then what is good. An audit with
    nothing left out has at least three: the gap, the trust in its numbers, and copies across the splits.
    """
    by_level = {level: [finding for finding in findings if finding.level == level] for level in LEVELS}
    return [*by_level["concern"], *by_level["watch"], *by_level["note"][:NOTES], *by_level["good"]][:FIRST_PAGE]


def _finding(report: Report, rule: FindingRule, seen: Observation) -> Finding:
    return Finding(
        id=rule.id,
        level=seen.level,
        title=seen.title,
        explanation=seen.explanation,
        evidence=cited(report, seen.evidence),
        advice=seen.advice,
        source=rule.source,
    )


def cited(report: Report, paths: Iterable[str]) -> dict[str, Any]:
    """Every path with its value, as in the JSON; a number that does not exist is no evidence and is left out."""
    found = {path: value_at(path, report) for path in paths}
    return {path: _plain(value) for path, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


# What stays open after the audit, and why: said before anybody asks.


def not_judged(report: Report) -> list[NotJudged]:
    """Every open question, the most important first, none twice."""
    found = [*_gap(report), *_blocks(report), *_labels(report), *_classes(report), *_layers(report), *_always(report)]
    return [NotJudged(what=what, why=why) for what, why in dict.fromkeys(found)]


Open = tuple[str, str]


def _gap(report: Report) -> Iterator[Open]:
    gap, void = report.gap, why_no_gap(report)
    if void is not None:
        yield "How the model does on unseen data", sentence(void)
        return
    error = gap.error_gap is not None
    bounds = gap.error_gap_ci95 if error else gap.loss_gap_ci95
    if bounds is None:
        yield "Whether the gap is more than chance", "There is no interval for it."
    elif any(bounds) and not above_zero(bounds) and not below_zero(bounds):
        widest = max(abs(bounds[0]), abs(bounds[1]))
        size = f"{100 * widest:.2f} percentage points" if error else number(widest)
        yield (
            f"Whether there is a gap below {size}",
            f"With {some(report.data.test.samples, 'test sample')} the 95 % interval includes zero.",
        )


def _blocks(report: Report) -> Iterator[Open]:
    broken = broken_blocks(report)
    measured = [entry for entry in CATALOGUE if entry.key not in ("gap", "hygiene")]  # of which more is said elsewhere
    for entry in measured:
        if entry.key in broken:
            yield entry.title, "A self-check that its numbers rest on failed."
    for entry in measured:
        block = entry.block(report)
        if block is None:
            yield entry.title, sentence(report.plan.stage(entry.key).why or NOT_PART)
        elif block.skipped and (entry.place == "network" or entry.in_part):
            yield entry.in_part[0] if entry.in_part else entry.title, sentence(block.skipped)
    if report.model.parity is None:
        yield "Whether the network answers as its file does elsewhere", "The format has no runtime to compare with."


def _labels(report: Report) -> Iterator[Open]:
    hygiene = report.hygiene
    if hygiene is None:
        yield "Whether the data are in order", NOT_PART
        return
    labels = hygiene.suspected_mislabels
    if labels.skipped:
        yield f"Whether train {label(report)}s are wrong", sentence(labels.skipped)
    elif labels.estimated_rate is None:
        yield (
            "How many train labels are wrong",
            sentence(labels.caveat or "the neighbours foretell test labels no better than guessing would"),
        )
    if hygiene.near.skipped:
        yield "Whether test samples are near copies of train samples", sentence(hygiene.near.skipped)
    if hygiene.leaked.searched < 1:
        yield "Copies of the train samples that were left out", "Only a part of the train samples on disk was used."


def _classes(report: Report) -> Iterator[Open]:
    names = [row.name for row in report.gap.per_class if row.loss_gap is None]
    if names:
        which, it = ("class", "it") if len(names) == 1 else ("classes", "them")
        partly = any(split.samples < split.total for split in (report.data.train, report.data.test))
        where = "the part of one of the splits that was used" if partly else "one of the splits"
        yield f"The gap of {which} {listed(names)}", f"There are no {unit(report)}s of {it} in {where}."


def _layers(report: Report) -> Iterator[Open]:
    """Layers without a decomposition and layers passed by, one entry for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for layer in report.layers:
        if layer.duality is not None and layer.duality.skipped:
            reasons.setdefault(("The part in the gap of", layer.duality.skipped), []).append(layer.name)
    for other in report.passed_by:
        reasons.setdefault(("Everything about", other.why), []).append(other.name)
    for (about, why), names in list(reasons.items())[:MANY]:
        yield f"{about} {'layer' if len(names) == 1 else 'layers'} {listed(names)}", sentence(why)
    if len(reasons) > MANY:
        yield "Further layers", "The ledger of layers in this report has the reason for each."


def _always(report: Report) -> Iterator[Open]:
    if any(getattr(report.network, block) is not None for block in NO_SCALE):
        yield from _no_scale(report)
    yield "How the model does on data from elsewhere or from later", "Only the given test split was looked at."


NO_SCALE = {"flatness": "curvature", "fisher": "Fisher information", "sensitivity": "sensitivity"}
MANY_OF_THEM = ("are", "They have no scale of their own", "follow")


def _no_scale(report: Report) -> Iterator[Open]:
    """Numbers without a scale; those that lie beside their twins' have one."""
    bands = [] if report.twins is None else [f".{band.key}" for band in report.twins.numbers]
    scaled = {block for block in NO_SCALE for key in bands if f".{block}." in key}
    missing = {block for block in NO_SCALE if scaled and getattr(report.network, block) is None}
    names = [name for block, name in NO_SCALE.items() if block not in scaled | missing]
    if names:
        which = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        are, have, follow = ("is", "It has no scale of its own", "follows") if len(names) == 1 else MANY_OF_THEM
        yield (
            f"Whether {which} {are} high or low",
            f"{have} and {follow} the train loss: only a second model, trained on the same data to the same train "
            "loss, gives one (`gen-audit compare`).",
        )


__all__ = ["FindingRule", "Observation", "add_findings", "first_page"]
