"""`gen-audit check`: the gate. Audits a model, or takes a finished report, and holds it against a policy."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.app import Earlier, check_there, command, compared, drawing, dry_run, earlier_plan, read_report, run
from audit.cli.options import (
    AsJson,
    BesideTwins,
    ConfigPath,
    DryRun,
    Formats,
    PlanPath,
    Quiet,
    chosen_formats,
    output_option,
    with_settings,
)
from audit.cli.terminal import complain, say, say_whole
from audit.errors import AuditError, UsageError
from audit.settings import flag
from audit.settings.config import CONFIG_NAME, config_files, resolve

if TYPE_CHECKING:
    from audit.compare import Comparison
    from audit.measures import Report
    from audit.policy import Verdict
    from audit.report.blocks import Gallery

Target = Annotated[Path, typer.Argument(metavar="MODEL|REPORT", help="A model file, or a report.json on its own.")]
MaybeOutput = Annotated[Path | None, output_option("report into, if any")]
DataOfModel = Annotated[Path | None, typer.Argument(metavar="DATA", help="Folder with a train and a test split.")]
PolicyPath = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        help=f"File with the rules (default: [policy] in {CONFIG_NAME}, or built in).",
        rich_help_panel="Policy",
    ),
]
HeldAgainst = Annotated[
    Path | None,
    typer.Option("--baseline", help="A report.json that the release is held against.", rich_help_panel="Policy"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Turn warnings into failures.", rich_help_panel="Policy")]


@command()
@with_settings()
def check(
    target: Target,
    data: DataOfModel = None,
    policy: PolicyPath = None,
    baseline: HeldAgainst = None,
    strict: Strict = False,
    as_json: AsJson = False,
    out: MaybeOutput = None,
    formats: Formats = "html,json,junit",
    config: ConfigPath = None,
    quiet: Quiet = False,
    plan: PlanPath = None,
    dry: DryRun = False,
    twins: BesideTwins = None,
    **flags: Any,
) -> None:
    """Pass or fail MODEL on DATA, or a report.json, by a policy."""
    check_there(None if data is None else target, data)
    from audit.policy import lines
    from audit.policy.judge import judge
    from audit.policy.parse import policy_in_force
    from audit.render import check_writable, staged
    from audit.render.ci import tell_github

    wanted = chosen_formats(formats)
    rules = policy_in_force(policy, config_files(config, data))
    earlier = None if baseline is None else read_report(baseline)
    if out is not None:
        check_writable(out)
    if data is None:
        _check_finished(target, {**flags, "plan": plan, "dry_run": dry or None, "twins": twins})
        result, shown = read_report(target), None
    else:
        settings, followed = resolve(flags, config_files(config, data)), earlier_plan(plan, baseline, flags)
        if dry:
            dry_run(target, data, settings, Earlier(followed, twins=twins), as_json)
            return
        audited = run(target, data, settings, quiet, Earlier(followed, baseline, twins=twins))
        result, shown = audited.report, audited.shown
    with drawing(target) if data is None else nullcontext():
        verdict = judge(rules, result, earlier, strict=strict)
    comparison = _comparison(baseline, target, result, shown)
    written: list[Path] = []
    if out is not None:
        with staged(out, new_audit=data is not None, read=baseline) as stage:
            written = [out / name for name in _write(result, verdict, stage, wanted, comparison)]
    if as_json:
        say_whole(json.dumps(verdict.to_dict(), indent=2, ensure_ascii=False))
    else:
        say(*lines(verdict, quiet), marked=True)
    for path in written if not (as_json or quiet) else ():
        say(path)
    for annotation in tell_github(result, os.environ, verdict, comparison):
        complain(annotation)
    raise typer.Exit(0 if verdict.passed else 1)


def _check_finished(target: Path, flags: dict[str, Any]) -> None:
    """Without data there must be a finished report, of which nothing can be chosen any more."""
    if target.suffix != ".json":
        raise UsageError(f"{target}: is no report.json; name the data folder, too: gen-audit check {target} DATA.")
    given = [name for name, value in flags.items() if value is not None]
    if given:
        raise UsageError(f"{flag(given[0])}: the report is finished; give a model and data to audit anew.")


def _comparison(baseline: Path | None, target: Path, report: Report, shown: Gallery | None) -> Comparison | None:
    """The page's section on what changed; where the two do not compare, the verdict says so."""
    try:
        return compared(baseline, str(target), report, shown)
    except AuditError:
        return None


def _write(
    report: Report, verdict: Verdict, folder: Path, formats: tuple[str, ...], comparison: Comparison | None
) -> tuple[str, ...]:
    """The names of the files."""
    from audit.cli.terminal import tell_missing
    from audit.render.write import PageOptions, write_report

    written = write_report(report, folder, formats, verdict, PageOptions(comparison=comparison)).checked()
    tell_missing(written)
    return written.files
