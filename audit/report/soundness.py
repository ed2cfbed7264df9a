"""What is wrong with a report that has every field: numbers that are none, unknown words, lists that do not fit.

Whoever reads a report may then rely on it: no page, comparison or gate looks for damage again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from audit.report.blocks import Outcomes, SplitOutcomes
from audit.report.report import Foot, Head

TASKS = ("classification", "binary", "regression")
LOSSES = ("cross_entropy", "bce", "mse")
LEVELS = ("good", "note", "watch", "concern")
KINDS = ("check", "assumption")
STATUSES = ("passed", "failed", "skipped")
LARGEST_LOSS = 1e150  # its square is still a number
LAYER = re.compile(r"layers\[(\d+)\]")


def faults(head: Head, foot: Foot, layers: int) -> Iterator[str]:
    """Everything that is wrong with what stands around the measures' blocks, each with its path."""
    yield from _words(head, foot)
    if head.model.outputs < 1:
        yield f"model.outputs is {head.model.outputs}"
    if foot.outcomes is not None:
        yield from _outcomes(foot.outcomes, head.model.task)
    yield from _evidence(foot, layers)


def _words(head: Head, foot: Foot) -> Iterator[str]:
    said: list[tuple[str, str, tuple[str, ...]]] = [
        ("model.task", head.model.task, TASKS),
        ("model.loss", head.model.loss, LOSSES),
    ]
    for place, check in enumerate(foot.checks):
        said.append((f"checks[{place}].kind", check.kind, KINDS))
        said.append((f"checks[{place}].status", check.status, STATUSES))
    said += [(f"findings[{place}].level", finding.level, LEVELS) for place, finding in enumerate(foot.findings)]
    for path, word, known in said:
        if word not in known:
            yield f"{path} is {word!r}, not one of {', '.join(known)}"


def _outcomes(outcomes: Outcomes, task: str) -> Iterator[str]:
    for name in ("train", "test"):
        split: SplitOutcomes = getattr(outcomes, name)
        places, kept = split.positions, len(split.positions)
        if not kept:
            yield f"outcomes.{name} holds no sample"
        if split.wrong is None and task != "regression":
            yield f"outcomes.{name}.wrong is null, though the task is {task}"
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


def _evidence(foot: Foot, layers: int) -> Iterator[str]:
    """Findings name layers by their position."""
    for place, finding in enumerate(foot.findings):
        for path in finding.evidence:
            layer = LAYER.match(path)
            if layer and int(layer[1]) >= layers:
                yield f"findings[{place}] rests on {path}, and there are {layers} layers"
