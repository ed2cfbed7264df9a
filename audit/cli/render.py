"""`gen-audit render`: the pages of a report, drawn again."""

from __future__ import annotations

import json
from pathlib import Path

from audit.cli.app import AsJson, BaselinePath, Formats, Output, ReportPath, Templates, app, chosen_formats, read_report
from audit.cli.baseline import compared


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
    from audit.cli.terminal import tell_missing
    from audit.render.output import staged
    from audit.render.write import write_report

    wanted = chosen_formats(formats)
    result = read_report(report_file)
    comparison = compared(baseline, str(report_file), result)
    with staged(out, new_audit=False) as stage:
        written = write_report(result, stage, wanted, templates=templates, comparison=comparison).checked()
    tell_missing(written)
    files = [str(out / name) for name in written.files]
    print(json.dumps({"files": files}, indent=2) if as_json else "\n".join(files))
