"""A report beside its baseline, for the section of the page that compares them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from audit.cli.app import read_report

if TYPE_CHECKING:
    from audit.compare.result import Comparison
    from audit.measures.report import Report


def compared(baseline: Path | None, name: str, report: Report) -> Comparison | None:
    """What changed from the baseline's report to this one; None without a baseline."""
    if baseline is None:
        return None
    from audit.compare.comparable import Named
    from audit.compare.compare import compare_reports

    command = shlex.join(["gen-audit", *sys.argv[1:]])
    return compare_reports(Named(str(baseline), read_report(baseline)), Named(name, report), command)
