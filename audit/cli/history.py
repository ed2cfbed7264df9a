"""`gen-audit history`: the audits of a folder over time."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import AsJson, Quiet, app
from audit.errors import UsageError

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with report.json files, also in its folders.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to write the history into.")]
Pages = Annotated[str, typer.Option("-f", "--format", help="Which files to write, of html,pdf,json,md.")]


@app.command()
def history(
    folder: Folder,
    out: Out = Path("gen-audit-history"),
    formats: Pages = "html,json",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw every number of the reports in DIR over time."""
    from audit.history.read import read_folder
    from audit.history.trace import trace_history
    from audit.output import check_writable, staged
    from audit.render.history import write_history
    from audit.render.pages import chosen_pages

    wanted = chosen_pages(formats)
    if not as_json:
        check_writable(out)
    result = trace_history(read_folder(folder), folder, shlex.join(["gen-audit", *sys.argv[1:]]))
    if as_json:
        print(result.to_json(), end="")
        return
    with staged(out, new_audit=False) as stage:
        written = write_history(result, stage, wanted)
        if not written.files:
            raise UsageError(written.missing[0])
    for missing in written.missing:
        print(f"gen-audit: {missing}", file=sys.stderr)
    if not quiet:
        for line in result.lines:
            print(f"{line.data}: {' '.join(line.headline)}")
        print("\n".join(str(out / name) for name in written.files))
