"""Finds the reports in a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

from audit.compare.ground import Named
from audit.errors import UsageError, unreadable
from audit.report import Report

ANY_REPORT = re.compile(r"gen-audit/\d+")  # of whichever schema; one that cannot be read must not go unnoticed


def read_folder(folder: Path) -> list[Named]:
    """Every report in the folder and its subfolders, the oldest first; other JSON files are passed over."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; name the one that holds the report.json files.")
    found = [Named(str(path), report) for path in sorted(folder.rglob("*.json")) if (report := _report(path))]
    if not found:
        raise UsageError(f"{folder}: holds no report of gen-audit; put report.json files into it, or into its folders.")
    return sorted(found, key=lambda each: (each.report.created, each.name))


def _report(path: Path) -> Report | None:
    """The report in a file, or None where the file is something else; a damaged report is an error."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({unreadable(error)}); remove it or mend its permissions.") from error
    except json.JSONDecodeError:
        return None
    if not isinstance(document, dict) or not ANY_REPORT.fullmatch(str(document.get("schema"))):
        return None
    return Report.from_json(text, str(path))
