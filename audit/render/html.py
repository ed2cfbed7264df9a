"""The report as one HTML file: no script, no network, readable on a phone, in the dark and on paper."""

from __future__ import annotations

from typing import Any

from audit.render.templates import environment


def render_html(report: dict[str, Any], paper: bool = False) -> str:
    """The page of a report's JSON values; the same values give the same bytes.

    On `paper` nothing can be folded: definition cards become an appendix of short paragraphs, which also takes a PDF
    half the time to lay out, and the tables that only a screen folds away are left out.
    """
    return environment(escaped=True).get_template("report.html.j2").render(report=report, paper=paper)
