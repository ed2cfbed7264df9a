"""The band in which past audits of the same architecture and data lay."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from audit.compare.comparable import Named, architecture
from audit.compare.differences import same_samples
from audit.compare.result import OF_NETWORK, ON_SAMPLES
from audit.history.timeline import networks_comparable, read_folder
from audit.measures.report import Report
from audit.report.blocks import Reference, ReferenceNumber
from audit.report.fields import Compared
from audit.report.paths import find

NONE = "no report in the folder is of another model with this architecture on these train and test samples"


def past_audits(folder: Path | None) -> list[Named]:
    """The reports of the folder, if one was named."""
    return [] if folder is None else read_folder(folder)


def reference_band(report: Report, past: Sequence[Named], folder: Path) -> Reference:
    """Lowest, median and highest value of every number over the past audits that this one can stand beside."""
    reasons = [_why_not(report, each.report) for each in past]
    others = [each.report for each, why in zip(past, reasons, strict=True) if why is None]
    passed_over = len(past) - len(others)
    if not others:
        return Reference(folder=str(folder), reports=0, passed_over=passed_over, skipped=_none(reasons))
    numbers = [_number(entry, report, others) for entry in ON_SAMPLES]
    for entry in OF_NETWORK:
        numbers.append(_number(entry, report, [one for one in others if networks_comparable(report, one, entry)]))
    kept = [number for number in numbers if number is not None]
    return Reference(folder=str(folder), reports=len(others), passed_over=passed_over, numbers=kept)


def _why_not(report: Report, other: Report) -> str | None:
    """Why an audit cannot stand beside this one: another task, samples or layers, or the very same model."""
    if (report.model.task, report.model.loss) != (other.model.task, other.model.loss):
        return "of another task"
    if not all(same_samples(report, other, split) for split in ("train", "test")):
        return "on other samples"
    convolutions = [bool(each.settings.get("conv")) for each in (report, other)]
    if report.model.parameters == other.model.parameters and convolutions[0] != convolutions[1]:
        return f"audited {'with' if convolutions[1] else 'without'} --conv, unlike this one"
    if architecture(report) != architecture(other):
        return "of another architecture"
    return "of this very model" if report.model.sha256 == other.model.sha256 else None


def _none(reasons: Sequence[str | None]) -> str:
    """Why there is no band, with how many reports each reason took away."""
    counts = Counter(why for why in reasons if why is not None)
    return NONE + (f" ({'; '.join(f'{why}: {count}' for why, count in counts.items())})" if counts else "")


def _number(entry: Compared, report: Report, others: Sequence[Report]) -> ReferenceNumber | None:
    """The band of one number; None where this audit or all the others lack it."""
    own = find(entry.key, report)[0]
    found = [find(entry.key, other)[0] for other in others]
    values = [float(part.value) for part in found if not part.missing]
    if own.missing or not values:
        return None
    return ReferenceNumber(
        key=entry.key,
        name=entry.name,
        kind=entry.kind,
        value=float(own.value),
        low=min(values),
        median=statistics.median(values),
        high=max(values),
        reports=len(values),
    )
