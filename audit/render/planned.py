"""Plan and fact: what was measured how, how long it should have taken, and how long it did."""

from __future__ import annotations

from dataclasses import dataclass

from audit.findings.rule import sentence
from audit.measures.catalogue import CATALOGUE
from audit.measures.report import Report
from audit.report.plan import PlannedStage

HOW = {"exact": "exact", "sampled": "sampled", "skipped": "left out"}
TITLES = {
    **{entry.key: entry.title for entry in CATALOGUE},
    "forward": "Losses and errors",
    "capture": "Capture pass, shared by the exact measures",
    "checks": "Self-checks",
}


@dataclass(frozen=True)
class StageRow:
    """A stage of the audit: as it was planned, and as it went."""

    title: str
    how: str
    samples: str
    predicted: float | None
    taken: float | None
    why: str


def stages(report: Report) -> list[StageRow]:
    """Every stage of the plan, and all together; empty for a report without one."""
    rows = [_stage_row(report, stage) for stage in report.plan.stages]
    if not rows:
        return []
    captured = _taken(report, "capture")
    planned = any(stage.name == "capture" for stage in report.plan.stages)
    if captured is not None and report.plan.is_exact("flatness") and not planned:
        samples = report.plan.stage("capture").looks_at(report.data.train.samples)
        rows.insert(1, StageRow(TITLES["capture"], "exact", samples, None, captured, ""))
    taken = [row.taken for row in rows if row.taken is not None]
    return [*rows, StageRow("All of these", "", "", report.plan.seconds, sum(taken) if taken else None, "")]


def measured_how(report: Report) -> str:
    """The stages that did not look at all samples, in one sentence."""
    rows = [row for row in stages(report) if row.how in ("sampled", "left out")]
    parts = [f"{row.title} {row.how}{f' on {row.samples}' if row.how == 'sampled' else ''}" for row in rows]
    return f"{'; '.join(parts)}; everything else on all train samples."


def _stage_row(report: Report, stage: PlannedStage) -> StageRow:
    done = stage.form != "skipped"
    return StageRow(
        title=TITLES.get(stage.name, stage.name),
        how=HOW[stage.form],
        samples=stage.looks_at(report.data.train.samples),
        predicted=stage.seconds if done else None,
        taken=_taken(report, stage.name) if done else None,
        why=sentence(stage.why) if stage.why else "",
    )


def _taken(report: Report, stage: str) -> float | None:
    """Seconds of a stage."""
    measures = report.timings.get("measures")
    spent = measures.get(stage) if isinstance(measures, dict) and stage in measures else report.timings.get(stage)
    return spent if isinstance(spent, (int, float)) else None
