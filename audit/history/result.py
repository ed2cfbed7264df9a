"""`History`: the audits of a folder in their order, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from audit.report.fields import Interval, Kind, says
from audit.report.schema import Document

SCHEMA = "gen-audit/history/1"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One audit's primary number beside that of an earlier one, on the same samples."""

    against: str = says("the earlier report")
    difference: float
    ci95: Interval = says("interval of the difference: 95 %, beside the best wider, at the confidence `level`")
    level: float = says("confidence of the interval", default=0.95)
    verdict: str = says("better, worse, the same, cannot tell, no interval")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One audit."""

    report: str
    model: str
    model_sha256: str
    created: str
    void: str | None = says("why its test split is no evidence; it is then no yardstick for later ones")
    previous: Change | None = says("beside the audit before it", default=None)
    best: Change | None = says("beside the best audit before it, where that is another one", default=None)
    regression: bool = says("worse than the one before it or than the best before it", default=False)


@dataclass(frozen=True, kw_only=True)
class Trend:
    """One number along the audits; null where an audit does not have it."""

    key: str = says("its path in report.json")
    name: str
    section: str
    kind: Kind
    values: list[float | None]
    ci95: list[Interval]
    comparable: list[bool] = says("whether the audit's value can stand beside the latest one's")


@dataclass(frozen=True, kw_only=True)
class Line:
    """Audits that can be compared: one task, the same test samples."""

    data: str
    test_samples: int
    primary: str = says("key of the number that regressions are called by")
    steps: list[Step]
    trends: list[Trend]
    first_regression: str | None = says("the first report that is worse than one before it")
    headline: list[str]


@dataclass(frozen=True, kw_only=True)
class History(Document):
    """The history of a folder, complete."""

    folder: str
    reports: int
    lines: list[Line]
    notes: list[str] = field(default_factory=list)
