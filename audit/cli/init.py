"""`gen-audit init`: a policy to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import command
from audit.cli.options import AsJson
from audit.cli.terminal import say
from audit.errors import UsageError
from audit.settings.config import CONFIG_NAME

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write it into.", show_default="this one")]
Force = Annotated[
    bool, typer.Option("--force", help=f"Replace a {CONFIG_NAME} that is there.", rich_help_panel="Output")
]


@command()
def init(folder: Folder = Path(), force: Force = False, as_json: AsJson = False) -> None:
    """Write the default policy, with comments, as gen-audit.toml."""
    from audit.policy.parse import DEFAULT

    path = folder / CONFIG_NAME
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; make it first, or name another one.")
    if path.exists() and not force:
        raise UsageError(f"{path}: is there already; --force replaces it.")
    try:
        path.write_text(DEFAULT.read_text(encoding="utf-8"), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name another folder.") from error
    say(json.dumps({"file": str(path)}) if as_json else path)
