"""`gen-audit render`: the pages of a report, drawn again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import Formats, Output, app, chosen_formats
from audit.errors import UsageError


@app.command()
def render(
    report_file: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")],
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html",
) -> None:
    """Draw the pages of a report.json again, without the model."""
    from audit.output import staged
    from audit.render import write_report
    from audit.report import Report

    wanted = chosen_formats(formats)
    try:
        text = report_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{report_file}: cannot be read ({error}); name a report.json.") from error
    result = Report.from_json(text, str(report_file))
    with staged(out, new_audit=False) as stage:
        written = write_report(result, stage, wanted)
        if not written.files:
            raise UsageError(written.missing[0])
    for missing in written.missing:
        print(f"gen-audit: {missing}", file=sys.stderr)
    for name in written.files:
        print(out / name)
