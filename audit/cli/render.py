"""`gen-audit render`: the pages of a report, drawn again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from audit.cli.app import AsJson, BaselinePath, Formats, Output, ReportPath, Templates, app, chosen_formats, read_report
from audit.cli.baseline import compared
from audit.errors import UsageError


@app.command()
def render(
    report_file: ReportPath,
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html",
    templates: Templates = None,
    baseline: BaselinePath = None,
    as_json: AsJson = False,
) -> None:
    """Draw the pages of a report.json again, without the model."""
    from audit.output import staged
    from audit.render import write_report

    wanted = chosen_formats(formats)
    result = read_report(report_file)
    comparison = compared(baseline, str(report_file), result)
    with staged(out, new_audit=False) as stage:
        written = write_report(result, stage, wanted, templates=templates, comparison=comparison)
        if not written.files:
            raise UsageError(written.missing[0])
    for missing in written.missing:
        print(f"gen-audit: {missing}", file=sys.stderr)
    files = [str(out / name) for name in written.files]
    print(json.dumps({"files": files}, indent=2) if as_json else "\n".join(files))
