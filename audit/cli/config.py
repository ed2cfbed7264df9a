"""`gen-audit config`: every setting in force, and where it comes from."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import command
from audit.cli.options import AsJson, ConfigPath
from audit.cli.terminal import say, say_whole
from audit.settings.config import config_files, resolve_with_origins

Folder = Annotated[Path | None, typer.Argument(metavar="DATA", help="The data folder, which may hold settings, too.")]


@command()
def config(data: Folder = None, config: ConfigPath = None, as_json: AsJson = False) -> None:
    """Print every setting in force, and where it comes from."""
    from audit.policy import counted
    from audit.policy.parse import policy_in_force

    files = config_files(config, data)
    settings, origins = resolve_with_origins({}, files)
    policy = policy_in_force(None, files)
    values = asdict(settings)
    if as_json:
        listed = {name: {"value": value, "from": origins[name]} for name, value in values.items()}
        gate = {"from": policy.source, "rules": [asdict(rule) for rule in policy.rules]}
        say_whole(json.dumps({"settings": listed, "policy": gate}, indent=2, ensure_ascii=False))
        return
    rows = [(name, json.dumps(value, ensure_ascii=False), origins[name]) for name, value in values.items()]
    rows.append(("policy", counted(len(policy.rules), "rule"), policy.source))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, value, origin in rows:
        say(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}")
