"""The report as Markdown, for a pull request or a wiki."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audit.render.templates import draw


def render_markdown(report: dict[str, Any], templates: Path | None = None) -> str:
    """The summary of a report's JSON values; the same values give the same bytes."""
    return draw("report.md.j2", templates, report=report)
