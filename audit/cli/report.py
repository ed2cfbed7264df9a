"""`gen-audit report`: audit a model and write the report."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.app import Earlier, check_there, command, compared, dry_run, earlier_plan, resumable, run
from audit.cli.options import (
    AsJson,
    BaselinePath,
    BesideTwins,
    ConfigPath,
    DataPath,
    DryRun,
    Formats,
    ModelPath,
    Output,
    PlanPath,
    Quiet,
    Resume,
    Short,
    Templates,
    chosen_formats,
    with_settings,
)
from audit.cli.terminal import complain, say_whole
from audit.settings.config import config_files, resolve

if TYPE_CHECKING:
    from audit.measures import Report

ReferenceFolder = Annotated[
    Path | None,
    typer.Option(
        "--reference", help="Folder with past reports of this architecture on these data.", rich_help_panel="Output"
    ),
]


@command()
@with_settings()
def report(
    model: ModelPath,
    data: DataPath,
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html,pdf,json",
    config: ConfigPath = None,
    templates: Templates = None,
    baseline: BaselinePath = None,
    reference: ReferenceFolder = None,
    short: Short = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    plan: PlanPath = None,
    dry: DryRun = False,
    resume: Resume = False,
    twins: BesideTwins = None,
    **flags: Any,
) -> None:
    """Audit MODEL on DATA and write the report."""
    check_there(model, data)
    from audit.cli.terminal import print_outcome
    from audit.compare.history.timeline import past_audits, reference_band
    from audit.render import check_writable, staged
    from audit.render.ci import tell_github
    from audit.render.page import check_templates
    from audit.render.write import PageOptions, write_report

    wanted = chosen_formats(formats)
    if templates is not None:
        check_templates(templates)
    settings = resolve(flags, config_files(config, data))
    followed = earlier_plan(plan, baseline, flags)
    if dry:
        dry_run(model, data, settings, Earlier(followed, twins=twins), as_json)
        return
    check_writable(out)
    past = past_audits(reference)
    with resumable(out, resume) as kept:
        audited = run(model, data, settings, quiet, Earlier(followed, baseline, kept, twins, must_compare=True))
        result = audited.report
        if reference is not None:
            result = replace(result, reference=reference_band(result, past, reference))
        comparison = compared(baseline, str(model), result, audited.shown)
        with staged(out, read=baseline) as stage:
            options = PageOptions(templates, comparison, short)
            written = write_report(result, stage, wanted, options=options).checked()
    print_outcome(result, out, written, quiet or as_json, comparison)
    if as_json:
        say_whole(
            json.dumps(_outcome(result, [str(out / name) for name in written.files]), indent=2, ensure_ascii=False)
        )
    for annotation in tell_github(result, os.environ, comparison=comparison):
        complain(annotation)


def _outcome(report: Report, files: list[str]) -> dict[str, Any]:
    """What the summary says, for machines: everything else is in report.json."""
    gap = {key: value for key, value in asdict(report.gap).items() if key not in ("per_class", "confusion")}
    findings = [{"id": one.id, "level": one.level, "title": one.title} for one in report.findings]
    line = None if report.bottom_line is None else asdict(report.bottom_line)
    return {"bottom_line": line, "gap": gap, "warnings": report.warnings, "findings": findings, "files": files}
