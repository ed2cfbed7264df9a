"""A history as one page without script: every number along the audits, with its intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.compare.train_loss import INSIDE
from audit.history.sentences import inside, shown_change
from audit.render.page import FOR_MACHINES
from audit.render.pages import write_pages
from audit.render.templates import draw

if TYPE_CHECKING:
    from audit.history.result import History, Line, Trend
    from audit.render.write import Written


def write_history(history: History, folder: Path, formats: Sequence[str]) -> Written:
    """Write `history.<format>` into `folder` for each of html, pdf, json and md."""
    values: dict[str, Any] = {"history": history, "pictures": pictures, "inside": inside, "shown_change": shown_change}

    def page(paper: bool) -> str:
        text = draw("history.html.j2", None, paper=paper, **values)
        return FOR_MACHINES.sub("", text) if paper else text

    def markdown() -> str:
        return draw("history.md.j2", None, **values)

    return write_pages("history", folder, formats, html=page, md=markdown, json=history.to_json)


def pictures(line: Line, section: str) -> Iterator[tuple[Trend, list[tuple[int, float, list[float] | None, bool]]]]:
    """Each trend of a section with its points: place from 1, value, interval, and whether it is a regression there."""
    for trend in line.trends:
        if trend.key.startswith(INSIDE) != (section == "inside"):
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
