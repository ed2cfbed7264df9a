"""`gen-audit overview`: every model of a folder of reports at a glance."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.app import command, command_line, write_pages
from audit.cli.options import AsJson, PageFormats, Quiet, output_option
from audit.cli.terminal import complain, in_table, say, say_whole

if TYPE_CHECKING:
    from audit.compare.history import Overview

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with report.json files, also in its folders.")]
Out = Annotated[Path, output_option("overview into")]


@command()
def overview(
    folder: Folder,
    out: Out = Path("gen-audit-overview"),
    formats: PageFormats = "html,json",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show all models of the reports in DIR, worst findings first."""
    from audit.compare.history import make_overview
    from audit.render import check_writable
    from audit.render.comparison_pages import chosen_pages, write_overview

    wanted = chosen_pages(formats)
    check_writable(out)
    result = make_overview(folder, command_line())
    files = write_pages(out, partial(write_overview, result, formats=wanted, place=out))
    for file in result.broken:
        complain(f"{file.path}: {file.why}")
    if as_json:
        say_whole(result.to_json())
    elif not quiet:
        _print(result)
        say(*files)


def _print(result: Overview) -> None:
    """One row for each model."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from audit.render.comparison_pages import cells

    table = Table(box=box.SIMPLE)
    for column in ("model", "what was found", "on test (95 % interval)", "on train"):
        table.add_column(column, overflow="fold")
    for row in result.rows:
        table.add_row(*map(in_table, cells(row)))
    Console().print(table)
