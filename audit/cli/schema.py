"""`gen-audit schema`: the contract behind report.json."""

from __future__ import annotations

from audit.cli.app import app


@app.command()
def schema() -> None:
    """Print the JSON Schema of report.json."""
    import json

    from audit.report import json_schema

    print(json.dumps(json_schema(), indent=2))
