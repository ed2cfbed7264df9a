"""What the first page says, and which sections follow it in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audit.compare import Comparison, Number
from audit.findings import FIRST_PAGE
from audit.findings.bottom_line import draw_bottom_line
from audit.findings.bottom_line import of_hundred as of_hundred
from audit.findings.rule import layer as called
from audit.measures import Report
from audit.measures.catalogue import CATALOGUE, Entry
from audit.render.cards import ALL_CARDS
from audit.report import BottomLine, Finding
from audit.report.fields import Interval
from audit.report.numbers import interval, number
from audit.report.paths import steps_of, value_at

# What the first page says: findings with their evidence, what could not be judged, what the report may serve for.


EVIDENCE = 3  # numbers shown with a finding; the JSON has all
NAMES = {
    "duality.samples.index": "position of the costliest test sample",
    "duality.samples.partner": "position of its train partner",
    "duality.samples.gap": "what it costs above its partner",
    "duality.samples_share": "share of the summed differences",
    "gap.train_r2": "variance explained on train (R²)",
    "gap.per_class.loss_gap": "loss gap of that class",
    "hygiene.leaked.copies": "test samples also in train",
    "hygiene.leaked.share": "their share",
    "hygiene.suspected_mislabels.suspects.index": "position of a suspect train sample",
    "hygiene.told_apart.accuracy": "inputs told rightly whether from test or train",
    "hygiene.told_apart.by_chance": "by chance, in 95 of 100 cases",
    "hygiene.told_apart.p_value": "share of random divisions told apart as well",
    "sensitivity.bounds.left": "left side of the bound",
    "sensitivity.bounds.right": "right side of the bound",
    "twins.held_out.held_out": "wrong on train samples not seen",
    "twins.held_out.test": "wrong on test, the same networks",
    "twins.held_out.difference": "test minus train samples not seen",
    "twins.held_out": "test minus train samples not seen",  # its interval
    "twins.likeness.asked": "networks that the hit rate is of",
}  # what a path's own words would not say
LEVELS = {"concern": "Concern", "watch": "Watch", "note": "Note", "good": "Good"}
TOWARDS = (
    (
        "NIST AI RMF 1.0, MEASURE 2.5",
        "the system is shown to be valid and reliable, and limits of its generalizability are documented",
        "the gap with its interval, the findings, and what could not be judged",
        "other conditions of use than those of the test split",
    ),
    (
        "NIST AI RMF 1.0, MEASURE 1.1",
        "metrics are chosen, and what will not or cannot be measured is documented",
        "the definition cards, the applicability ledger and the self-checks",
        "which risks matter for the use at hand",
    ),
    (
        "EU AI Act, Annex IV 2(g)",
        "validation and testing procedures, the data used, metrics, and dated and signed test reports",
        "data and hashes, metrics with intervals, date, settings and sign-off lines",
        "bias, cybersecurity and everything else that Annex IV asks for",
    ),
)


def leading(report: Report) -> list[Finding]:
    """The findings of the first page: those marked for it; of a report without such marks the heaviest."""
    return [finding for finding in report.findings if finding.first_page] or report.findings[:FIRST_PAGE]


def bottom_line(report: Report) -> BottomLine:
    """The report in one sentence; one that was written before there were such gets it now."""
    return report.bottom_line or draw_bottom_line(report)


Bar = tuple[str, float, Interval, str, bool]  # name, value, interval, both in words, whether it is the model's


def bars(report: Report) -> list[Bar]:
    """What the picture of the bottom line shows: the model, where it is weakest, and the constant answer."""
    line = bottom_line(report)
    if line.value is None:
        return []
    if line.number == "rmse":
        return _errors(report, line)
    rows = [_right("This model", line.value, line.value_ci95)]
    if line.weakest is not None:
        ends = line.weakest.error_ci95
        of_class = None if ends is None else (1 - ends[1], 1 - ends[0])
        rows.append(_right(f"Weakest: class {line.weakest.name}", 1 - line.weakest.error, of_class))
    if line.guess is not None:
        rows.append(("Always the commonest class", line.guess, None, of_hundred(line.guess), False))
    return rows


def _right(name: str, value: float, ends: Interval) -> Bar:
    within = "" if ends is None else f" ({of_hundred(ends[0])} to {of_hundred(ends[1])})"
    return name, value, ends, f"{of_hundred(value)}{within}", True


def _errors(report: Report, line: BottomLine) -> list[Bar]:
    gap = report.gap
    ours = (("This model, on test", line.value, line.value_ci95), ("On train", gap.train_rmse, gap.train_rmse_ci95))
    rows = [
        (name, value, ends, f"{number(value)}{f' ({interval(ends)})' if ends else ''}", True)
        for name, value, ends in ours
        if value is not None
    ]
    constant = [] if line.guess is None else [("Always the mean", line.guess, None, number(line.guess), False)]
    return [*rows, *constant]


def further(report: Report, heavy: bool) -> list[Finding]:
    """The findings that the first page has no room for: concerns and watches where `heavy`, else the others."""
    shown = leading(report)
    rest = [finding for finding in report.findings if finding not in shown]
    return [finding for finding in rest if (finding.level in ("concern", "watch")) == heavy]


def evidence(report: Report, finding: Finding) -> list[tuple[str, str, str]]:
    """Words, path in the JSON and value of the first numbers behind a finding."""
    cited = {path: value for path, value in finding.evidence.items() if _has_number(path, finding.evidence)}
    rows = [(_words(report, path), path, _value(value)) for path, value in cited.items()]
    return [row for row in rows if row[2]][:EVIDENCE]


def _has_number(path: str, cited: Any) -> bool:
    """Whether the number that an interval of a block is about is cited, too: alone it would be read as another's.

    >>> cited = ("duality.fixed.share", "duality.ci95.sharp_share")
    >>> _has_number("duality.ci95.sharp_share", cited), _has_number("duality.fixed.share", cited)
    (False, True)
    """
    return ".ci95." not in path or re.sub(r"\.ci95\.([a-z]+)_", r".\1.", path) in cited


def _words(report: Report, path: str) -> str:
    """A path as a reader would say it: the title of its card, or its last words, and the layer it is about.

    >>> _words({"layers": [{"name": "fc1"}]}, "layers[0].duality.sharp.share")
    'sharp share in fc1'
    >>> _words({}, "gap.loss_gap"), _words({}, "gap.loss_gap_ci95"), _words({}, "data.test.samples")
    ('loss gap', 'loss gap, 95 % interval', 'test samples')
    """
    steps = steps_of(path)
    if steps[0] == "checks" and steps[-1] in (".value", ".tolerance"):
        title = value_at("".join((*steps[:-1], ".title")), report)
        return f"{title}: {'measured' if steps[-1] == '.value' else 'limit'}"
    of_layer = steps[0] == "layers"
    where = f" in {called(value_at(''.join((*steps[:2], '.name')), report))}" if of_layer else ""
    bounds = path.endswith("_ci95") or ".ci95" in steps
    inside = steps[1:] if of_layer or steps[0] == "network" else steps
    key = "".join(step for step in inside if step[0] != "[" and step != ".ci95").removeprefix(".").removesuffix("_ci95")
    title = next((card.title for card in ALL_CARDS if card.id == key), None)
    words = title[0].lower() + title[1:] if title and title[1:2].islower() else title
    words = NAMES.get(key) or words or " ".join(key.split(".")[-2 if key.count(".") > 1 else -1 :])
    return f"{words.replace('_', ' ')}{where}{', 95 % interval' if bounds else ''}"


def _value(value: Any) -> str:
    """A cited value in a few characters; nothing for what is no single number or interval.

    >>> _value(0.38921), _value([0.2708, 0.5231]), _value(True), _value("passed"), _value([1, 2, 3]), _value({})
    ('0.389', '0.271 to 0.523', 'yes', '', '', '')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return interval(value)
    return ""


# Which sections a report has, and in which order: first what everyone needs, then an appendix for experts.


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
    return [*_findings(report, True), *_measured(report), *_compared(report, comparison), *CLOSING]


def _measured(report: Report) -> Iterator[Section]:
    """The measures in the order of the catalogue; the twins beside the gap, failures after the calibration."""
    for entry in CATALOGUE:
        if _shown(entry, report, False):
            yield Section(entry.key, entry.title)
        if entry.key == "gap" and report.twins is not None:
            yield TWINS
        if entry.key == "calibration" and has_samples(report):
            yield FAILURES


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
