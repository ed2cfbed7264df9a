"""The report as one HTML file: no script, no network, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import re
from pathlib import Path

from audit.compare.result import Comparison
from audit.measures.report import Report
from audit.render.templates import draw

# What a reader of paper does not see; text is escaped and holds neither tags nor quotes.
FOR_MACHINES = re.compile(r'</?data\b[^>]*>|<wbr>| (?:role|aria-[a-z]+|scope|tabindex|title|datetime)="[^"]*"')
POWER = "10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]"
WITHIN_NUMBER = re.compile(rf"(?<=\d) (?=%|× {POWER})|(?<=×) (?={POWER})")  # spaces at which no line may end
BEFORE_INLINE = re.compile(r" (?=<(?:a|b|code|em|span|strong)\b)")


def render_html(
    report: Report,
    paper: bool = False,
    templates: Path | None = None,
    comparison: Comparison | None = None,
) -> str:
    """The page of a report; the same report gives the same bytes.

    On `paper` nothing can be folded: definition cards become short paragraphs, tables that only a screen folds away are
    left out, and so are the tags that only a machine reads, which a PDF would take long to lay out. `comparison` with a
    baseline gets a section of its own.
    """
    page = draw("report.html.j2", templates, report=report, paper=paper, comparison=comparison)
    page = WITHIN_NUMBER.sub("\u00a0", page)
    return for_paper(page) if paper else page


def for_paper(page: str) -> str:
    """Without the tags for machines, and with a break after every space before a tag.

    WeasyPrint 70 breaks a line behind its first word where all of it but that space would fit.
    """
    return BEFORE_INLINE.sub(" \u200b", FOR_MACHINES.sub("", page))


# The report as Markdown, for a pull request or a wiki.


def render_markdown(report: Report, templates: Path | None = None) -> str:
    """The summary of a report; the same report gives the same bytes."""
    return draw("report.md.j2", templates, report=report)
