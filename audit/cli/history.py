"""`gen-audit history`: the audits of a folder over time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import command, command_line, write_pages
from audit.cli.options import AsJson, PageFormats, Quiet, output_option
from audit.cli.terminal import say, say_whole

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with report.json files, also in its folders.")]
Out = Annotated[Path, output_option("history into")]


@command()
def history(
    folder: Folder,
    out: Out = Path("gen-audit-history"),
    formats: PageFormats = "html,json",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw every number of the reports in DIR over time."""
    from audit.compare import read_folder
    from audit.compare.history.timeline import trace_history
    from audit.render import check_writable
    from audit.render.comparison_pages import chosen_pages, write_history

    wanted = chosen_pages(formats)
    check_writable(out)
    result = trace_history(read_folder(folder), folder, command_line())
    files = write_pages(out, partial(write_history, result, formats=wanted))
    if as_json:
        say_whole(result.to_json())
    elif not quiet:
        say(*(f"{line.data}: {' '.join(line.headline)}" for line in result.lines), *files)
