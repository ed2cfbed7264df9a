"""`gen-audit compare`: what changed between two reports, two models, or two recipes with several seeds each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.app import check_there, command, command_line, drawing, named_report, write_pages
from audit.cli.options import AsJson, ConfigPath, PageFormats, Quiet, output_option, with_settings
from audit.cli.terminal import complain, say, say_whole
from audit.errors import UsageError
from audit.settings import Settings
from audit.settings.config import config_files, resolve

if TYPE_CHECKING:
    from audit.compare import Comparison, Named

Compared = Annotated[
    list[Path] | None,
    typer.Argument(metavar="OLD NEW [DATA]", help="Two report.json; or two models and the folder with their data."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="<path,path>",
        help="Reports of one recipe, a.json,b.json or their folder; give the flag twice.",
        rich_help_panel="Data",
    ),
]
Out = Annotated[Path, output_option("comparison into")]


@command()
@with_settings()
def compare(
    compared: Compared = None,
    group: Groups = None,
    out: Out = Path("gen-audit-comparison"),
    formats: PageFormats = "html,json",
    config: ConfigPath = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Say what changed from OLD to NEW: better, worse, or cannot tell."""
    from audit.render import check_writable
    from audit.render.ci import tell_github_of
    from audit.render.comparison_pages import chosen_pages, write_comparison

    wanted = chosen_pages(formats)
    check_writable(out)
    result = _comparison(compared or [], group or [], config, quiet or as_json, flags)
    files = write_pages(out, partial(write_comparison, result, formats=wanted))
    if as_json:
        say_whole(result.to_json())
    elif not quiet:
        say(f"Verdict on the new side: {result.verdict}.", *result.headline, *files, marked=True)
    for annotation in tell_github_of(result, os.environ):
        complain(annotation)


def _comparison(
    compared: Sequence[Path], groups: Sequence[str], config: Path | None, quiet: bool, flags: dict[str, Any]
) -> Comparison:
    if groups:
        if compared or len(groups) != 2:
            raise UsageError("compare: takes --group exactly twice, the old recipe first, and nothing beside it.")
        from audit.compare.recipes import compare_groups

        return compare_groups(_members(groups[0]), _members(groups[1]), (groups[0], groups[1]), command_line())
    if len(compared) == 2 and all(path.suffix == ".json" for path in compared):
        from audit.compare.compare import compare_reports

        with drawing(compared[1]):
            return compare_reports(named_report(compared[0]), named_report(compared[1]), command_line())
    if len(compared) == 3 and not any(path.suffix == ".json" for path in compared):
        old, new, data = compared
        check_there(old, data)
        check_there(new, data)
        return _models(old, new, data, resolve(flags, config_files(config, data)), quiet)
    raise UsageError("compare: takes two report.json, or two models and the folder with their data.")


def _models(old: Path, new: Path, data: Path, settings: Settings, quiet: bool) -> Comparison:
    from audit.run.compare_models import compare_models
    from audit.run.progress import progress_for

    with closing(progress_for(quiet)) as progress:
        return compare_models(old, new, data, settings, command_line(), progress)


def _members(text: str) -> list[Named]:
    """The reports of a group: named one by one, or every report.json in a folder and its subfolders."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"--group {text!r}: names no report; give a.json,b.json or the folder that holds them.")
    if Path(text).is_dir():
        from audit.compare import read_folder

        return read_folder(Path(text))
    return [named_report(Path(name)) for name in names]
