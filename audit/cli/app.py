"""The Typer app, and the steps that several commands take. Whatever is heavy is imported when it is needed."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit import __version__
from audit.cli.options import GroupedCommand
from audit.cli.terminal import complain, say, say_whole
from audit.errors import AuditError, DataError, ModelError, UsageError
from audit.settings import flag
from audit.settings.limits import report_text

if TYPE_CHECKING:
    from audit.compare import Comparison, Named
    from audit.measures import Report
    from audit.render.write import Written
    from audit.report.blocks import Gallery
    from audit.report.conduct import Plan
    from audit.run.partial import Partial
    from audit.run.pipeline import Audited
    from audit.settings import Settings

app = typer.Typer(
    name="gen-audit",
    help="Will this model hold up on data it has not seen, and why or why not?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the start-up time, and the README can quote it
    context_settings={"help_option_names": ["-h", "--help"]},
)
command = partial(app.command, cls=GroupedCommand)


def _version(asked: bool) -> None:
    if asked:
        say(f"gen-audit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Will this model hold up on data it has not seen, and why or why not?"""


def command_line() -> str:
    """The command as it was typed, for the report."""
    return shlex.join(["gen-audit", *sys.argv[1:]])


def read_report(path: Path) -> Report:
    """A report.json, or a sentence that says why it is none."""
    from audit.measures import Report

    return Report.from_json(report_text(path), str(path))


def check_there(model: Path | None, data: Path | None) -> None:
    """Refuses a model or data that are not there, before what would read them is woken, which takes seconds."""
    for path, kind, sentence in (
        (model, ModelError, "there is no such file; check the path of the model."),
        (data, DataError, "there is no such folder; give the folder that holds the train and test data."),
    ):
        with suppress(OSError, ValueError):  # a path that cannot be asked for is refused by whoever reads it
            if path is not None and not os.path.lexists(path):
                raise kind(f"{path}: {sentence}")


@contextmanager
def drawing(path: Path) -> Iterator[None]:
    """Around what draws or judges a report that was read: what trips over it is in it, though every check passed."""
    try:
        yield
    except (AuditError, OSError, MemoryError, typer.Exit):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200].rstrip(".")
        raise UsageError(f"{path}: is damaged ({reason}); make it anew with `gen-audit report`.") from error


def named_report(path: Path) -> Named:
    """A report.json under its own name, to compare."""
    from audit.compare import Named

    return Named(str(path), read_report(path))


@dataclass(frozen=True)
class Earlier:
    """What an audit takes from those before it."""

    plan: Plan | None = None
    baseline: Path | None = None  # a report.json to be compared with
    kept: Partial | None = None
    twins: str | None = None  # a folder of them, or the time to make them in
    must_compare: bool = False  # whether a baseline that the report cannot be compared with ends the audit early


def run(model: Path, data: Path, settings: Settings, quiet: bool, earlier: Earlier) -> Audited:
    """The audit, by an earlier plan if there is one and beside twins if they are asked for; progress on stderr."""
    from audit.run.pipeline import Following, files_of, run_audit
    from audit.run.progress import progress_for

    named = None if earlier.baseline is None else named_report(earlier.baseline)
    baseline, only_with = None if named is None else named.report, named if earlier.must_compare else None
    following = Following(plan=earlier.plan, baseline=baseline, only_with=only_with, kept=earlier.kept)
    twins = None
    if earlier.twins is not None:
        from audit.twins.answers import twins_for, with_twins  # a room that most audits never enter

        twins = twins_for(earlier.twins, files_of(model, data), settings, (lambda line: None) if quiet else complain)
    with closing(progress_for(quiet)) as progress:
        audited = run_audit(model, data, settings, command_line(), progress, following)
    return audited if twins is None else with_twins(audited, *twins)


@contextmanager
def resumable(out: Path, resume: bool) -> Iterator[Partial]:
    """What is measured within, kept beside `out` until all went well."""
    from audit.run.partial import Partial

    beside = out if out.name not in ("", "..") else Path(os.path.abspath(out))
    kept = Partial(beside.with_name(f"{beside.name}.partial"), resume)
    if resume and not kept.unfinished:
        complain(f"gen-audit: --resume: there is no unfinished audit in {kept.folder}; beginning anew.")
    try:
        yield kept
    except (ModelError, DataError):  # they would end the next run, too
        if kept.holds_something:
            kept.remove()
        raise
    except UsageError:
        if kept.holds_something:
            complain(f"gen-audit: what was measured is kept in {kept.folder}, and of use once what follows is mended.")
        raise
    except BaseException:
        if kept.holds_something:
            words = "the same command with --resume goes on from there."
            complain(f"gen-audit: what was measured is kept in {kept.folder}; {words}")
        raise
    kept.remove()


def earlier_plan(plan: Path | None, baseline: Path | None, flags: Mapping[str, Any]) -> Plan | None:
    """The plan of the report that `--plan` names, else the baseline's; None where one is to be made.

    Numbers are compared best if they were measured in the same way; but whoever says how is heard.
    """
    given = [flag(name) for name in ("budget", "quick") if flags.get(name) is not None]
    if plan is not None:
        if given:
            raise UsageError(f"--plan: a plan has its own budget; leave {given[0]} out, or --plan.")
        return read_report(plan).plan
    if baseline is None or given:
        return None
    found = read_report(baseline).plan
    return found if found.stages else None


def dry_run(model: Path, data: Path, settings: Settings, earlier: Earlier, as_json: bool) -> None:
    """Prints the plan of the audit, and does nothing else."""
    from audit.cli.terminal import print_plan
    from audit.run.pipeline import plan_only
    from audit.run.progress import Progress

    seconds = None
    if earlier.twins is not None and not Path(earlier.twins).is_dir():
        from audit.twins.answers import time_for

        seconds = time_for(earlier.twins)
        seconds = math.inf if seconds is None else seconds
    made, samples = plan_only(model, data, settings, Progress(), earlier.plan)
    if as_json:
        say_whole(json.dumps(asdict(made), indent=2, ensure_ascii=False))
    else:
        print_plan(made, samples, seconds)


def compared(baseline: Path | None, name: str, report: Report, shown: Gallery | None = None) -> Comparison | None:
    """What changed from the baseline's report to this one; None without a baseline. `shown`: changed samples."""
    if baseline is None:
        return None
    from audit.compare import Named
    from audit.compare.compare import compare_reports

    return compare_reports(named_report(baseline), Named(name, report), command_line(), shown=shown)


def write_pages(out: Path, write: Callable[[Path], Written]) -> list[str]:
    """The pages of a finished result, put into `out` in one step; says what could not be written."""
    from audit.cli.terminal import tell_missing
    from audit.render import staged

    with staged(out, new_audit=False) as stage:
        written = write(stage).checked()
    tell_missing(written)
    return [str(out / name) for name in written.files]
