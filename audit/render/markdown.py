"""The report as Markdown, for a pull request or a wiki."""

from __future__ import annotations

from typing import Any

from audit.render.templates import environment


def render_markdown(report: dict[str, Any]) -> str:
    """The summary of a report's JSON values; the same values give the same bytes."""
    return environment(escaped=False).get_template("report.md.j2").render(report=report)
