"""Many models on one page, each with a link to its report, and as a table of words for a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from audit.history.overview import Audited, Overview
from audit.render.comparison_pages import write_pages
from audit.render.page import FOR_MACHINES, draw
from audit.render.sentences import file_name
from audit.render.write import Written
from audit.report.numbers import interval, shown

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


def _scale(row: Audited) -> tuple[str, str]:
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


def cells(row: Audited) -> tuple[str, str, str, str]:
    """Name, what was found, test and train, for a table of words."""
    parts = [(row.concerns, "of concern"), (row.watches, "to watch")]
    counted = ", ".join(f"{count} {word}" for count, word in parts if count) or "nothing that asks for attention"
    first = f"{counted}: {row.found[0].partition(': ')[2]}" if row.found else counted
    ends = f" ({interval(row.test_ci95, row.kind)})" if row.test_ci95 else ""
    test = "void" if row.void else f"{shown(row.test, row.kind)}{ends}"
    return row.name, first, test, shown(row.train, row.kind)
