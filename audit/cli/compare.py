"""`gen-audit compare`: what changed between two reports, two models, or two recipes with several seeds each."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.app import AsJson, ConfigPath, Quiet, app, read_report, with_settings
from audit.cli.pages import Pages, make_pages
from audit.config import config_files
from audit.errors import UsageError
from audit.settings import resolve

if TYPE_CHECKING:
    from audit.compare.comparable import Named
    from audit.compare.result import Comparison

Compared = Annotated[
    list[Path] | None,
    typer.Argument(metavar="OLD NEW [DATA]", help="Two report.json; or two models and the folder with their data."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", help="Reports of one recipe, a.json,b.json or their folder; give the flag twice."),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to write the comparison into.")]


@app.command()
@with_settings()
def compare(
    compared: Compared = None,
    group: Groups = None,
    out: Out = Path("gen-audit-comparison"),
    formats: Pages = "html,json",
    config: ConfigPath = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Say what changed from OLD to NEW: better, worse, or cannot tell."""
    from audit.render.comparison_pages import write_comparison

    make_pages(
        out,
        formats,
        lambda: _comparison(compared or [], group or [], config, quiet or as_json, flags),
        write_comparison,
        lambda result: [f"Verdict on the new side: {result.verdict}.", *result.headline],
        as_json=as_json,
        quiet=quiet,
    )


def _comparison(
    compared: list[Path], groups: list[str], config: Path | None, quiet: bool, flags: dict[str, Any]
) -> Comparison:
    command = shlex.join(["gen-audit", *sys.argv[1:]])
    if groups:
        if compared or len(groups) != 2:
            raise UsageError("compare: takes --group exactly twice, the old recipe first, and nothing beside it.")
        from audit.compare.recipes import compare_groups

        return compare_groups(_members(groups[0]), _members(groups[1]), (groups[0], groups[1]), command)
    if len(compared) == 2 and all(path.suffix == ".json" for path in compared):
        from audit.compare.compare import compare_reports

        return compare_reports(_named(compared[0]), _named(compared[1]), command)
    if len(compared) == 3 and not any(path.suffix == ".json" for path in compared):
        return _models(compared[0], compared[1], compared[2], config, quiet, command, flags)
    raise UsageError("compare: takes two report.json, or two models and the folder with their data.")


def _models(
    old: Path, new: Path, data: Path, config: Path | None, quiet: bool, command: str, flags: dict[str, Any]
) -> Comparison:
    from audit.run.compare_models import compare_models
    from audit.run.progress import progress_for

    settings = resolve(flags, config_files(config, data))
    progress = progress_for(quiet)
    try:
        return compare_models(old, new, data, settings, command, progress)
    finally:
        progress.close()


def _named(path: Path) -> Named:
    from audit.compare.comparable import Named

    return Named(str(path), read_report(path))


def _members(text: str) -> list[Named]:
    """The reports of a group: named one by one, or every report.json in a folder and its subfolders."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"--group {text!r}: names no report; give a.json,b.json or the folder that holds them.")
    if Path(text).is_dir():
        from audit.history.timeline import read_folder

        return read_folder(Path(text))
    return [_named(Path(name)) for name in names]
