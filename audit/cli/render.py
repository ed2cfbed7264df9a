"""`gen-audit render`: the pages of a report, drawn again."""

from __future__ import annotations

import json
from pathlib import Path

from audit.cli.app import command, compared, drawing, read_report, write_pages
from audit.cli.options import AsJson, BaselinePath, Formats, Output, ReportPath, Short, Templates, chosen_formats
from audit.cli.terminal import say, say_whole


@command()
def render(
    report_file: ReportPath,
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html",
    templates: Templates = None,
    baseline: BaselinePath = None,
    short: Short = False,
    as_json: AsJson = False,
) -> None:
    """Draw the pages of a report.json again, without the model."""
    from audit.render.write import PageOptions, write_report

    wanted = chosen_formats(formats)
    result = read_report(report_file)
    with drawing(report_file):
        comparison = compared(baseline, str(report_file), result)
        options = PageOptions(templates, comparison, short)
        files = write_pages(out, lambda folder: write_report(result, folder, wanted, options=options))
    if as_json:
        say_whole(json.dumps({"files": files}, indent=2))
    else:
        say(*files)
