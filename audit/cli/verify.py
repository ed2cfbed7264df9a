"""`gen-audit verify`: run an audit again and see whether every number comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from audit.cli.app import Earlier, check_there, command, read_report, run
from audit.cli.options import AsJson, DataPath, ModelPath, Quiet, ReportPath, with_settings
from audit.cli.terminal import say, say_whole
from audit.errors import UsageError
from audit.settings import Settings, flag, from_report
from audit.settings.config import RUNS_CODE, resolve
from audit.settings.limits import budget_bytes

if TYPE_CHECKING:
    from audit.measures import Report
    from audit.report.numbers import Difference, Reproduction

SHOWN = 20
LONGEST = 60


@command()
@with_settings("arch", "trust_pickle", "memory", "device")
def verify(
    report_file: ReportPath,
    model: ModelPath,
    data: DataPath,
    as_json: AsJson = False,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Audit again as REPORT was made: does every number come back?"""
    from audit.report.numbers import reproduction

    report = read_report(report_file)
    settings = _settings(report, str(report_file), flags)
    check_there(model, data)
    other = _other_files(report, model, data, settings)
    if other:
        _tell({"reproduced": False, "other": other}, [f"not reproduced: {other}"], as_json)
        raise typer.Exit(1)
    now = json.loads(run(model, data, settings, quiet, Earlier(report.plan)).report.to_json())
    found = reproduction(json.loads(report_file.read_text(encoding="utf-8")), now)
    _tell(found.to_dict(), _lines(found), as_json)
    raise typer.Exit(0 if found.reproduced else 1)


def _tell(found: dict[str, Any], lines: list[str], as_json: bool) -> None:
    if as_json:
        say_whole(json.dumps(found, indent=2))
    else:
        say(*lines)


def _settings(report: Report, where: str, flags: dict[str, Any]) -> Settings:
    """The report's own settings; what can run code is the user's to give."""
    made_with = from_report(report.settings, where)
    for name in sorted(RUNS_CODE):  # never taken from a report, which may come from a stranger
        if getattr(made_with, name) and flags[name] is None:
            raise UsageError(
                f"{where}: was made with {flag(name)} {getattr(made_with, name)}, which runs code; "
                f"give {flag(name)} yourself if you trust it."
            )
    if budget_bytes(made_with.memory) > budget_bytes(None):  # nor more memory than an audit takes by itself
        made_with = replace(made_with, memory=None)
    given = resolve(flags, environ={})
    return replace(made_with, **{name: getattr(given, name) for name, value in flags.items() if value is not None})


def _other_files(report: Report, model: Path, data: Path, settings: Settings) -> str | None:
    """A sentence where the model or the data are not those of the report: there is nothing to reproduce then."""
    from audit.data import data_sha256
    from audit.model import file_hash

    if file_hash(model) != report.model.sha256:
        return f"{model} is not the model of the report; its sha256 differs."
    inputs = tuple(report.model.input.name.split(", "))
    if data_sha256(data, settings, inputs) != report.data.sha256:
        return f"{data} does not hold the data of the report; their sha256 differs."
    return None


def _lines(found: Reproduction) -> list[str]:
    lines = ["model and data: the files of the report"]
    lines += [f"changed since: {change}" for change in found.changed]
    lines.append(f"numbers and words: {found.compared:,} compared, {found.identical:,} the same to the last bit")
    if found.largest is not None:
        lines.append(f"within tolerance, and nearest to its own: {_told(found.largest)}")
    for one in found.differences[:SHOWN]:
        lines.append(f"differs: {_told(one)}")
    if len(found.differences) > SHOWN:
        lines.append(f"differs: {len(found.differences) - SHOWN:,} more")
    count = len(found.differences)
    differ = "1 value differs" if count == 1 else f"{count:,} values differ"
    lines.append("reproduced" if found.reproduced else f"not reproduced: {differ}")
    return lines


def _told(one: Difference) -> str:
    allowed = "" if isinstance(one.before, str) else f" (allowed {one.allowed:.1e})"
    return f"{one.path}, {_short(one.before)} then, {_short(one.now)} now{allowed}"


def _short(value: Any) -> str:
    """A value as Python writes it; of a sentence, its beginning."""
    return repr(value if not isinstance(value, str) or len(value) <= LONGEST else f"{value[:LONGEST]}…")
