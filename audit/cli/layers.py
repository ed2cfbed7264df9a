"""`gen-audit layers`: which layers would be measured."""

from __future__ import annotations

from typing import Any

from audit.cli.app import AsJson, ModelPath, app, with_settings
from audit.config import config_files
from audit.settings import resolve


@app.command()
@with_settings("arch", "trust_pickle", "output", "input", "fix_input", "input_shape", "conv")
def layers(model: ModelPath, as_json: AsJson = False, **flags: Any) -> None:
    """List the layers of MODEL: measured, or passed by and why."""
    from audit.layer_table import print_layers
    from audit.listing import list_layers

    settings = resolve(flags, config_files())
    print_layers(*list_layers(model, settings), settings.conv, as_json)
