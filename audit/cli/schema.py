"""`gen-audit schema`: the contracts behind report.json, comparison.json, history.json, overview.json and a verdict."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from audit.cli.app import command
from audit.cli.options import completing
from audit.cli.terminal import say_whole
from audit.errors import UsageError

RESULTS = ("report", "comparison", "history", "overview", "verdict")
Which = Annotated[
    str,
    typer.Argument(
        metavar="RESULT", help="report, comparison, history, overview or verdict.", autocompletion=completing(RESULTS)
    ),
]
AlreadyJson = Annotated[
    bool, typer.Option("--json", help="Changes nothing: a schema is JSON.", rich_help_panel="Output")
]


@command()
def schema(which: Which = "report", as_json: AlreadyJson = False) -> None:
    """Print the JSON Schema of report.json, or of another result."""
    say_whole(json.dumps(_schema(which), indent=2))


def _schema(which: str) -> dict[str, Any]:
    from audit.report.fields import schema_of

    if which == "report":
        from audit.measures import Report
        from audit.report import SCHEMA

        return schema_of(Report, SCHEMA)
    if which == "comparison":
        from audit import compare

        return schema_of(compare.Comparison, compare.SCHEMA)
    if which == "history":
        from audit.compare import history

        return schema_of(history.History, history.SCHEMA)
    if which == "overview":
        from audit.compare import history

        return schema_of(history.Overview, history.OVERVIEW_SCHEMA)
    if which == "verdict":
        from audit.policy import VERDICT_SCHEMA, Verdict

        return schema_of(Verdict, VERDICT_SCHEMA)
    raise UsageError(f"schema: there is none of {which!r}; ask for report, comparison, history, overview or verdict.")
