"""What is wrong with a report that has every field: numbers that are none, unknown words, lists that do not fit.

Whoever reads a report may then rely on it: no page, comparison or gate looks for damage again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.blocks.outcomes import SplitOutcomes
    from audit.report import Report

TASKS = ("classification", "binary", "regression")
LOSSES = ("cross_entropy", "bce", "mse")
LEVELS = ("good", "note", "watch", "concern")
KINDS = ("check", "assumption")
STATUSES = ("passed", "failed", "skipped")
LARGEST_LOSS = 1e150  # its square is still a number
LAYER = re.compile(r"layers\[(\d+)\]")


def damage(report: Report, document: Any) -> str | None:
    """The first thing that is wrong, with its path; None where the report is sound. `document` is its JSON, parsed."""
    infinite = (f"{path} is not a finite number" for path in _not_finite("", document))
    return next((found for wrong in (infinite, *_looks(report)) for found in wrong), None)


def _looks(report: Report) -> tuple[Iterator[str], ...]:
    return _words(report), _gap(report), _outcomes(report), _evidence(report)


def _not_finite(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path.removeprefix(".")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _not_finite(f"{path}[{place}]", inner)


def _words(report: Report) -> Iterator[str]:
    said: list[tuple[str, str, tuple[str, ...]]] = [
        ("model.task", report.model.task, TASKS),
        ("model.loss", report.model.loss, LOSSES),
    ]
    for place, check in enumerate(report.checks):
        said.append((f"checks[{place}].kind", check.kind, KINDS))
        said.append((f"checks[{place}].status", check.status, STATUSES))
    said += [(f"findings[{place}].level", finding.level, LEVELS) for place, finding in enumerate(report.findings)]
    for path, word, known in said:
        if word not in known:
            yield f"{path} is {word!r}, not one of {', '.join(known)}"


def _gap(report: Report) -> Iterator[str]:
    """Every task has a loss; one that chooses among classes has errors, too."""
    if report.model.outputs < 1:
        yield f"model.outputs is {report.model.outputs}"
    for split in ("train", "test"):
        loss, error = (getattr(report.gap, f"{split}_{kind}") for kind in ("loss", "error"))
        if abs(loss) > LARGEST_LOSS or (report.model.loss == "mse" and loss < 0):
            yield f"gap.{split}_loss cannot be {loss:g}"
        if error is None and report.model.task != "regression":
            yield f"gap.{split}_error is null, though the task is {report.model.task}"


def _outcomes(report: Report) -> Iterator[str]:
    if report.outcomes is None:
        return
    for name in ("train", "test"):
        split: SplitOutcomes = getattr(report.outcomes, name)
        places, kept = split.positions, len(split.positions)
        if not kept:
            yield f"outcomes.{name} holds no sample"
        if split.wrong is None and report.model.task != "regression":
            yield f"outcomes.{name}.wrong is null, though the task is {report.model.task}"
        if not kept == len(split.loss) == (kept if split.wrong is None else len(split.wrong)):
            yield f"outcomes.{name}: positions, loss and wrong are not of one length"
        if any(later <= earlier for earlier, later in zip((-1, *places), places, strict=False)) or kept > split.samples:
            yield f"outcomes.{name}.positions are not those of different samples, in ascending order"
        if places and places[-1] >= 2**63:
            yield f"outcomes.{name}.positions: no split has {places[-1]} samples"
        if any(abs(loss) > LARGEST_LOSS for loss in split.loss):
            yield f"outcomes.{name}.loss is too large to be one"
        if split.wrong is not None and not {*split.wrong} <= {0, 1}:
            yield f"outcomes.{name}.wrong holds something other than 0 and 1"


def _evidence(report: Report) -> Iterator[str]:
    """Findings name layers by their position."""
    for place, finding in enumerate(report.findings):
        for path in finding.evidence:
            layer = LAYER.match(path)
            if layer and int(layer[1]) >= len(report.layers):
                yield f"findings[{place}] rests on {path}, and there are {len(report.layers)} layers"
