"""Which sections a report has, and in which order: first what everyone needs, then an appendix for experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.compare.result import Comparison, Number
from audit.measures.catalogue import CATALOGUE, Entry
from audit.measures.report import Report
from audit.render.summary import further


@dataclass(frozen=True)
class Section:
    """One section of the page; its part is the template of the same key."""

    key: str
    title: str
    decision: str = ""  # with what a section of the appendix opens: what it changes for the decision


FAILURES = Section("failures", "Failures and suspects")
INSIDE = Section("inside", "The baseline inside the network", "nothing by itself; it says what else is different.")
TWINS = Section("twins", "Beside its twins")
KINDS = Section("kinds", "How its twins can be told apart", "how far to trust the likeness that was found.")
BEFORE_HYGIENE = ("gap", "twins", "calibration", "failures", "consequences")
CLOSING = (
    Section("open", "What could not be judged, and why"),
    Section("glossary", "Words"),
    Section("sign-off", "Sign-off"),
)
FOR_EXPERTS = (
    Section("checks", "Self-checks and assumptions", "which numbers to trust: none of a section whose check failed."),
    Section("layers", "Applicability ledger", "which layers this appendix speaks about, and which it does not."),
    Section("evidence", "What this report can and cannot serve for", "what a reviewer may use this report for."),
    Section("cards", "Definition cards", "look a number up here before you rest anything on it."),
    Section("again", "How to get these numbers again", "how to see for yourself that they come back."),
)


def body(report: Report, comparison: Comparison | None) -> list[Section]:
    """The sections for everyone that have something to show."""
    measured = {entry.key: Section(entry.key, entry.title) for entry in CATALOGUE if _shown(entry, report, False)}
    if has_samples(report):
        measured["failures"] = FAILURES
    if report.twins is not None:
        measured["twins"] = TWINS
    first = [key for key in BEFORE_HYGIENE if key in measured]
    sections = [measured[key] for key in (*first, *(key for key in measured if key not in first))]
    return [*_findings(report, True), *sections, *_compared(report, comparison), *CLOSING]


def appendix(report: Report, comparison: Comparison | None) -> list[Section]:
    """The sections for experts that have something to show."""
    entries = [entry for entry in CATALOGUE if _shown(entry, report, True)]
    measured = [Section(entry.key, entry.title, entry.decision) for entry in entries]
    if comparison is not None and compared(comparison, True):
        measured.append(INSIDE)
    if report.twins is not None:
        measured.append(KINDS)
    fixed = [section for section in FOR_EXPERTS if section.key != "checks" or report.checks]
    return [*_findings(report, False), *measured, *fixed]


def compared(comparison: Comparison, expert: bool) -> list[Number]:
    """The numbers of a comparison that belong in its section of the body, or in that of the appendix."""
    experts = {entry.key for entry in CATALOGUE if entry.decision}
    told = [number for number in comparison.numbers if not number.skipped and number.difference is not None]
    return [number for number in told if (number.section in experts) == expert]


def has_samples(report: Report) -> bool:
    """Whether there are costly test samples or suspect train labels to look at."""
    over_pairs, hygiene = report.network.duality, report.hygiene
    return bool(over_pairs and over_pairs.samples) or bool(hygiene and hygiene.suspected_mislabels.suspects)


def _shown(entry: Entry, report: Report, expert: bool) -> bool:
    return bool(entry.decision) == expert and entry.block(report) is not None


def _findings(report: Report, heavy: bool) -> Iterator[Section]:
    """Findings beyond the first page: those to look at in the body, the others in the appendix."""
    if further(report, heavy):
        decision = "" if heavy else "little: these findings weigh less than those of the first page."
        yield Section("further" if heavy else "lesser", "Further findings" if heavy else "Lesser findings", decision)


def _compared(report: Report, comparison: Comparison | None) -> Iterator[Section]:
    if comparison is not None:
        yield Section("comparison", "Comparison with the baseline")
    if report.reference is not None:
        yield Section("reference", "Beside past audits")
