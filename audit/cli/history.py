"""`gen-audit history`: the audits of a folder over time."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import AsJson, Quiet, app
from audit.cli.pages import Pages, make_pages

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with report.json files, also in its folders.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to write the history into.")]


@app.command()
def history(
    folder: Folder,
    out: Out = Path("gen-audit-history"),
    formats: Pages = "html,json",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw every number of the reports in DIR over time."""
    from audit.history.timeline import read_folder, trace_history
    from audit.render.comparison_pages import write_history

    command = shlex.join(["gen-audit", *sys.argv[1:]])
    make_pages(
        out,
        formats,
        lambda: trace_history(read_folder(folder), folder, command),
        write_history,
        lambda result: [f"{line.data}: {' '.join(line.headline)}" for line in result.lines],
        as_json=as_json,
        quiet=quiet,
    )
