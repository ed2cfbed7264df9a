"""Past audits of the same architecture on the same data, to see a new one beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from audit.fields import says


@dataclass(frozen=True, kw_only=True)
class ReferenceNumber:
    """Where one number lay in past audits."""

    key: str = says("its path in report.json")
    name: str
    kind: str = says("how it is shown: number, percent or share")
    value: float = says("in this audit")
    low: float
    median: float
    high: float
    reports: int = says("past audits behind it; those of numbers that follow the train loss have this audit's, ± 5 %")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The band of past audits. A description: the past models need not have been good ones."""

    folder: str
    reports: int = says("past audits of other models with this architecture, on these data")
    passed_over: int = says("reports in the folder that are none")
    numbers: list[ReferenceNumber] = field(default_factory=list)
    skipped: str | None = says("why there is no band", default=None)
