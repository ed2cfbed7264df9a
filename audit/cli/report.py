"""`gen-audit report`: audit a model and write the report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from audit.cli.app import (
    ConfigPath,
    DataPath,
    Formats,
    ModelPath,
    Output,
    Quiet,
    Templates,
    app,
    chosen_formats,
    run,
    with_settings,
)
from audit.config import config_files
from audit.errors import UsageError
from audit.settings import resolve


@app.command()
@with_settings()
def report(
    model: ModelPath,
    data: DataPath,
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html,pdf,json",
    config: ConfigPath = None,
    templates: Templates = None,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Audit MODEL on DATA and write the report."""
    from audit.output import check_writable, staged
    from audit.render import write_report
    from audit.render.github import tell_github
    from audit.render.templates import check_templates
    from audit.terminal import print_outcome

    wanted = chosen_formats(formats)
    if templates is not None:
        check_templates(templates)
    settings = resolve(flags, config_files(config, data))
    check_writable(out)
    result = run(model, data, settings, quiet)
    with staged(out) as stage:
        written = write_report(result, stage, wanted, templates=templates)
        if not written.files:
            raise UsageError(written.missing[0])
    print_outcome(result, out, written, quiet)
    for annotation in tell_github(result, os.environ):
        print(annotation, file=sys.stderr)
