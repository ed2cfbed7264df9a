"""Writing a report's files from a program: one call, and an error where nothing could be written."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.render.output import FILES, staged
from audit.render.write import write_report

if TYPE_CHECKING:
    from audit.measures.report import Report
    from audit.policy import Verdict


def save(report: Report, folder: Path, formats: str | Sequence[str], verdict: Verdict | None) -> list[Path]:
    """The paths of the files that were written; a page that this machine cannot draw is a warning."""
    names = formats.split(",") if isinstance(formats, str) else formats
    wanted = list(dict.fromkeys(name.strip() for name in names))
    if unknown := [name for name in wanted if name not in FILES]:
        raise UsageError(f"formats: {unknown[0]!r} is no format that exists; choose among {', '.join(FILES)}.")
    with staged(folder, new_audit=False) as stage:
        written = write_report(report, stage, wanted, verdict).checked()
    for missing in written.missing:
        warnings.warn(missing, stacklevel=3)
    return [folder / name for name in written.files]
