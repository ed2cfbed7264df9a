"""Pages about several audits: a comparison, a history, an overview of many models; one finished value in, files out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from audit.compare import Comparison, Number
from audit.compare.comparable import NETWORK
from audit.compare.history import History, Line, Overview, OverviewRow, Trend, shown_change, within_folder
from audit.compare.sentences import difference, with_sign
from audit.errors import UsageError
from audit.measures.catalogue import CATALOGUE
from audit.render.page import FOR_MACHINES, draw
from audit.render.pdf import PdfUnavailable, write_pdf
from audit.render.sentences import file_name
from audit.render.write import Written
from audit.report.numbers import interval, shown

# A comparison and a history as HTML, PDF, Markdown or JSON: one finished value in, files out.


FORMATS = ("html", "pdf", "json", "md")
SECTIONS = {"observed": "What both models did"} | {entry.key: entry.title for entry in CATALOGUE}
SHORT = {"test_error": "Test", "train_error": "Train", "error_gap": "Gap"}
SHORT |= {"test_loss": "Test", "train_loss": "Train", "loss_gap": "Gap"}


def chosen_pages(text: str) -> tuple[str, ...]:
    """The formats named in `-f html,pdf`, or a sentence."""
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not wanted or not set(wanted) <= set(FORMATS):
        raise UsageError(f"-f: {text!r} names no format that exists here; choose among {', '.join(FORMATS)}.")
    return wanted


def write_pages(
    name: str,
    folder: Path,
    formats: Sequence[str],
    html: Callable[[bool], str],
    md: Callable[[], str],
    json: Callable[[], str],
) -> Written:
    """Write `name.<format>` for each format; without the libraries for a PDF the other files are still written.

    `html` is told whether the page is for paper.
    """
    texts = {"html": lambda: html(False), "md": md, "json": json}
    files, missing = [], []
    for kind in formats:
        path = folder / f"{name}.{kind}"
        try:
            if kind == "pdf":
                write_pdf(html(True), path)
            else:
                path.write_text(texts[kind](), encoding="utf-8", newline="\n")
            files.append(path.name)
        except PdfUnavailable as reason:
            missing.append(str(reason))
    return Written(tuple(files), tuple(missing))


# Comparisons.


@dataclass(frozen=True)
class Row:
    """One number of both sides in words."""

    number: Number
    old: str
    new: str
    difference: str
    interval: str


class Mark(NamedTuple):
    """A difference to be drawn; its shape and colour tell its verdict."""

    name: str
    value: float
    bounds: list[float]
    words: str
    verdict: str


def write_comparison(comparison: Comparison, folder: Path, formats: Sequence[str]) -> Written:
    """Write `comparison.<format>` into `folder` for each of html, pdf, json and md."""
    return write_pages(
        "comparison",
        folder,
        formats,
        html=lambda paper: comparison_html(comparison, paper),
        md=lambda: draw("compare.md.j2", None, **_values(comparison)),
        json=comparison.to_json,
    )


def comparison_html(comparison: Comparison, paper: bool = False) -> str:
    """The page; the same comparison gives the same bytes."""
    page = draw("compare.html.j2", None, paper=paper, **_values(comparison))
    return FOR_MACHINES.sub("", page) if paper else page


def _values(comparison: Comparison) -> dict[str, Any]:
    rows = [_row(number) for number in comparison.numbers]
    first = next(row for row in rows if row.number.key == comparison.primary)
    return {
        "comparison": comparison,
        "first": first,
        "sections": list(_sections(rows)),
        "missing": _missing(rows),
        "warnings": _warnings(comparison),
        "pictures": list(_pictures(rows)),
    }


def _sections(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Title and rows of each section that has some."""
    there = [row for row in rows if not row.number.skipped]
    for key in dict.fromkeys(row.number.section for row in there):
        yield SECTIONS[key], [row for row in there if row.number.section == key]


def _missing(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Each reason why something is missing once, with the sections that it speaks of."""
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.number.skipped:
            reasons.setdefault(row.number.skipped, {})[SECTIONS[row.number.section]] = None
    return [(", ".join(titles), why) for why, titles in reasons.items()]


def _warnings(comparison: Comparison) -> list[tuple[str, str]]:
    """Each warning of a report once, with the side or sides that have it."""
    both = set(comparison.old.warnings) & set(comparison.new.warnings)
    sides = ((comparison.old.name, comparison.old.warnings), (comparison.new.name, comparison.new.warnings))
    alone = [(name, warning) for name, warnings in sides for warning in warnings if warning not in both]
    return [*(("Both", warning) for warning in comparison.old.warnings if warning in both), *alone]


def _pictures(rows: Sequence[Row]) -> Iterator[tuple[str, list[Mark], str]]:
    """Differences that share a unit, to be drawn beneath one another: kind of number, rows and what the axis counts."""
    units = (("percent", "wrong answers, new minus old, in percentage points"), ("number", "mean loss, new minus old"))
    for kind, words in units:
        own = [row for row in rows if row.number.section == "observed" and row.number.kind == kind]
        drawn = [
            Mark(
                SHORT[row.number.key.removeprefix("gap.")],
                row.number.difference,
                list(row.number.ci95),
                row.difference.removesuffix(" points"),
                row.number.verdict,
            )
            for row in own
            if row.number.difference is not None and row.number.ci95 is not None
        ]
        if drawn:
            yield "points" if kind == "percent" else "number", drawn, words


def _row(number: Number) -> Row:
    return Row(
        number=number,
        old=shown(number.old, number.kind),
        new=shown(number.new, number.kind),
        difference=difference(number),
        interval=_interval(number),
    )


def _interval(number: Number) -> str:
    if number.ci95 is None:
        return ""
    if number.kind in ("percent", "share"):
        return interval(number.ci95, "points")
    return " to ".join(map(with_sign, number.ci95))


# Histories.


def write_history(history: History, folder: Path, formats: Sequence[str]) -> Written:
    """Write `history.<format>` into `folder` for each of html, pdf, json and md."""
    words: dict[str, Any] = {"within_folder": within_folder, "shown_change": shown_change}
    values = {"history": history, "pictures": trends, **words}

    def page(paper: bool) -> str:
        text = draw("history.html.j2", None, paper=paper, **values)
        return FOR_MACHINES.sub("", text) if paper else text

    def markdown() -> str:
        return draw("history.md.j2", None, **values)

    return write_pages("history", folder, formats, html=page, md=markdown, json=history.to_json)


def trends(line: Line, section: str) -> Iterator[tuple[Trend, list[tuple[int, float, list[float] | None, bool]]]]:
    """Each trend of a section with its points: place from 1, value, interval, and whether it is a regression there."""
    for trend in line.trends:
        if trend.key.startswith(NETWORK) != (section == "inside"):
            continue
        called = [step.regression and trend.key == line.primary for step in line.steps]
        rows = enumerate(zip(trend.values, trend.ci95, trend.comparable, called, strict=True), start=1)
        points = [
            (place, value, None if bounds is None else list(bounds), worse)
            for place, (value, bounds, comparable, worse) in rows
            if value is not None and comparable
        ]
        if section == "observed" or len(points) > 1:
            yield trend, points


# Many models on one page, each with a link to its report, and as a table of words for a terminal.


NAMES = {"test_error": "wrong answers", "test_rmse": "typical error (RMSE)", "test_loss": "mean loss"}


def write_overview(overview: Overview, folder: Path, formats: Sequence[str], place: Path) -> Written:
    """Write `overview.<format>` into `folder` for each of html, pdf, json and md; links lead there from `place`."""

    def page(paper: bool) -> str:
        text = draw("overview.html.j2", None, paper=paper, **values(overview, place))
        return FOR_MACHINES.sub("", text) if paper else text

    def markdown() -> str:
        return draw("overview.md.j2", None, **values(overview, place))

    return write_pages("overview", folder, formats, html=page, md=markdown, json=overview.to_json)


def values(overview: Overview, place: Path) -> dict[str, Any]:
    """What the templates draw."""
    scales: dict[tuple[str, str], list[float]] = {}
    for row in overview.rows:
        ends = [row.test, row.train, *(row.test_ci95 or ())]
        scales.setdefault(_scale(row), []).extend(ends)
    return {
        "overview": overview,
        "links": {row.report: link(row.page, place) for row in overview.rows},
        "scales": {row.report: scales[_scale(row)] for row in overview.rows},
        "NAMES": NAMES,
        "file_name": file_name,
    }


def _scale(row: OverviewRow) -> tuple[str, str]:
    """Shares of wrong answers have one scale; other errors one for each data set."""
    return (row.number, "" if row.kind == "percent" else row.data)


def link(page: str, place: Path) -> str:
    """The way from a page in `place` to another one, as a browser takes it.

    >>> link("runs/a b/report.html", Path("runs/overview"))
    '../a%20b/report.html'
    """
    try:
        way = os.path.relpath(page, place)
    except ValueError:  # on another drive
        way = os.path.abspath(page)
    return quote(way.replace(os.sep, "/"), safe="/.")


def cells(row: OverviewRow) -> tuple[str, str, str, str]:
    """Name, what was found, test and train, for a table of words."""
    parts = [(row.concerns, "of concern"), (row.watches, "to watch")]
    counted = ", ".join(f"{count} {word}" for count, word in parts if count) or "nothing that asks for attention"
    first = f"{counted}: {row.found[0].partition(': ')[2]}" if row.found else counted
    ends = f" ({interval(row.test_ci95, row.kind)})" if row.test_ci95 else ""
    test = "void" if row.void else f"{shown(row.test, row.kind)}{ends}"
    return row.name, first, test, shown(row.train, row.kind)
