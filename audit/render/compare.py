"""A comparison as HTML, PDF, Markdown or JSON: one finished value in, files out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.compare.sentences import difference, with_sign
from audit.measures.catalogue import CATALOGUE
from audit.render.page import FOR_MACHINES
from audit.render.pages import write_pages
from audit.render.templates import draw
from audit.report.numbers import interval, shown

if TYPE_CHECKING:
    from audit.compare.result import Comparison, Number
    from audit.render.write import Written

SECTIONS = {"observed": "What both models did"} | {entry.key: entry.title for entry in CATALOGUE}

SHORT = {"test_error": "Test", "train_error": "Train", "error_gap": "Gap"}
SHORT |= {"test_loss": "Test", "train_loss": "Train", "loss_gap": "Gap"}


@dataclass(frozen=True)
class Row:
    """One number of both sides in words."""

    number: Number
    old: str
    new: str
    difference: str
    interval: str


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
        "pictures": list(_pictures(rows)),
    }


def _sections(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], list[str]]]:
    """Title, rows and, once each, the reasons for what is missing."""
    for key, title in SECTIONS.items():
        own = [row for row in rows if row.number.section == key]
        why = list(dict.fromkeys(row.number.skipped for row in own if row.number.skipped))
        if own:
            yield title, [row for row in own if not row.number.skipped], why


def _pictures(rows: Sequence[Row]) -> Iterator[tuple[str, list[tuple[str, float, list[float], str]], str]]:
    """Differences that share a unit, to be drawn beneath one another: kind of number, rows and what the axis counts."""
    for kind, words in (("percent", "wrong answers, new minus old"), ("number", "mean loss, new minus old")):
        own = [row for row in rows if row.number.section == "observed" and row.number.kind == kind]
        drawn = [
            (SHORT[row.number.key.removeprefix("gap.")], row.number.difference, list(row.number.ci95), row.difference)
            for row in own
            if row.number.difference is not None and row.number.ci95 is not None
        ]
        if drawn:
            yield "share" if kind == "percent" else "number", drawn, words


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
