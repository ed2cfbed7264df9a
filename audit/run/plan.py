"""Makes the plan of an audit: what is measured on all samples, and what on how many, within a time and a memory budget.

Everything is counted, not timed: the operations of each form over a coarse speed of the machine, a power of two, so
that two runs on one machine make the same plan. If all exact forms fit the budget together, all are taken. Otherwise a
stage stays exact only where that costs next to nothing, and the others are sampled, each with as many samples, in
powers of two, as its share of the budget allows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from audit import checks
from audit.errors import UsageError
from audit.measures.suite import MEASURES
from audit.measures.workload import (
    BACKWARD,
    OVERHEAD,
    TOO_LONG,
    Demand,
    Workload,
    curvature_bytes,
    planned_bytes,
    power_of_two,
)
from audit.report.conduct import Plan, PlannedStage, readable_seconds
from audit.settings import Settings

SECONDS = {"": 1.0, "S": 1.0, "M": 60.0, "H": 3600.0}
FITS = 0.8  # of the budget, that the exact forms may be predicted to take together
NEXT_TO_NOTHING = 0.05  # of the budget: an exact form below it is taken also where not all are
ALWAYS_THERE = 64 << 20  # bytes that the exact curvature of a small layer may take, however little is allowed
START = 4.5  # seconds that loading, reading, drawing and everything small take
DOUBLE_CONVOLUTIONS = 4.0  # how much slower convolutions are in double precision than matrix products
PARITY = 200  # passes of one sample that show the network to be that of its file
COLUMNS, LEAST_COLUMNS = 4096, 512  # of a layer with one vector per sample; of one over tokens a sixteenth
TOO_LARGE = "the exact form would take more memory than --memory leaves"
QUICK = "Left out by --quick."

FORWARD = Demand(
    lambda work, _settings: (PARITY + work.samples + work.tests) * work.operations,
    bytes=lambda _stage, work, _settings, _size: 8 * (work.samples + work.tests) * work.outputs,
)


def _stages() -> dict[str, Demand]:
    """Every stage, in the order of a plan: the measures in that of the report, but each after what it rests on."""
    measures = {measure.key: measure.demand for measure in MEASURES}
    found = {"forward": FORWARD}
    for key, demand in measures.items():
        if not demand.rests_on:
            found[key] = demand
            found |= {other: its for other, its in measures.items() if its.rests_on == key}
    return {**found, "checks": checks.DEMAND}


STAGES = _stages()


def budget_seconds(budget: str) -> float | None:
    """Seconds of "90s", "5m", "1.5h"; None of "none".

    >>> budget_seconds("1.5m"), budget_seconds("none")
    (90.0, None)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([SMH]?)\s*", budget.upper())
    if budget.strip().lower() == "none":
        return None
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget: {budget!r} is not an amount of time; write it like 90s, 5m, 1h or none.")
    return float(match[1]) * SECONDS[match[2]]


def make_plan(work: Workload, settings: Settings, memory: int, speeds: tuple[float, float]) -> Plan:
    """The plan; `speeds`: operations per second in double and in single precision, as powers of two."""
    budget = budget_seconds(settings.budget)
    double, single = speeds[0] / (DOUBLE_CONVOLUTIONS if work.convolves else 1.0), speeds[1]
    left_out = [stage for name, demand in STAGES.items() if (stage := _left_out(name, demand, work, settings))]
    measured = {name: demand for name, demand in STAGES.items() if name not in {stage.name for stage in left_out}}
    exact = {name: OVERHEAD * each.operations(work, settings) for name, each in measured.items() if each.operations}
    apart = [name for name in exact if not STAGES[name].runs_network]
    beside = [*left_out, *(PlannedStage(name=name, seconds=exact.pop(name) / single) for name in apart)]
    plan = Plan(budget=budget, memory=memory, operations=work.operations, quick=settings.quick)
    too_large = curvature_bytes(work, settings) > max(memory, ALWAYS_THERE)
    others = sum(stage.seconds for stage in beside)
    if not too_large and (budget is None or sum(exact.values()) / double + others <= FITS * budget):
        plan, speed = replace(plan, arithmetic=settings.precision, speed=speeds[0]), double
        stages = [_exact(name, operations / speed) for name, operations in exact.items()]
    else:
        plan, speed = replace(plan, arithmetic="float32", speed=single), single
        limits = Limits(budget if budget is not None else float("inf"), too_large, speed)
        stages = _in_one_form(
            [_stage(name, operations / speed, work, limits) for name, operations in exact.items()], work
        )
        stages = [_with_what_is_beside(stage, work, speed) for stage in stages]
    stages += [each.alone(work, budget, speed) for each in measured.values() if each.alone]
    return _finished(plan, [*stages, *beside], work, settings)


def _left_out(name: str, demand: Demand, work: Workload, settings: Settings) -> PlannedStage | None:
    """The stage with the reason why it is not done, if there is one."""
    why = demand.why_not(work) or (QUICK if settings.quick and not demand.quick else None)
    return None if why is None else PlannedStage(name=name, form="skipped", why=why)


def _finished(plan: Plan, stages: Sequence[PlannedStage], work: Workload, settings: Settings) -> Plan:
    """The plan with its stages in their order; none holds more than it may, whatever it would like to."""
    size = 4 if plan.arithmetic == "float32" else 8
    order = list(STAGES)

    def with_bytes(stage: PlannedStage) -> PlannedStage:
        demand = STAGES[stage.name]
        most = int(demand.turns * plan.memory)
        return replace(stage, bytes=min(most, planned_bytes(demand, stage, work, settings, size)))

    ordered = sorted(_where_first_asked_for(stages), key=lambda each: order.index(each.name))
    return replace(plan, stages=[with_bytes(stage) for stage in ordered])


def _where_first_asked_for(stages: Sequence[PlannedStage]) -> list[PlannedStage]:
    """What several measures rest on is found by the one that finishes first, and its time is spent there."""
    found = {stage.name: stage for stage in stages}
    finished = [measure.key for measure in MEASURES]
    for shared in [name for name in found if STAGES[name].columns]:
        users = [name for name in found if name == shared or STAGES[name].rests_on == shared]
        first = min((name for name in users if found[name].form != "skipped"), key=finished.index, default=shared)
        seconds = sum(found[name].seconds for name in {first, shared})
        found[shared] = replace(found[shared], seconds=0.0)
        found[first] = replace(found[first], seconds=seconds)
    return list(found.values())


@dataclass(frozen=True)
class Limits:
    """What a stage must keep to."""

    budget: float  # seconds of the whole audit
    too_large: bool  # whether the exact curvature of the layers does not fit into memory
    speed: float  # operations per second in single precision


def _stage(name: str, exact: float, work: Workload, limits: Limits) -> PlannedStage:
    """The exact form where it costs next to nothing or there is no other; else the sampled one."""
    demand = STAGES[name]
    too_large = demand.columns and limits.too_large
    sampled = demand.sampled
    if sampled is None or (exact <= NEXT_TO_NOTHING * limits.budget and not too_large):
        return _exact(name, exact)
    each, share = OVERHEAD * sampled.each(work) / limits.speed, sampled.share * limits.budget
    samples = min(sampled.most, max(sampled.least, power_of_two(share / each)), work.samples)
    columns, seconds = 0, samples * each
    if demand.columns:
        column = OVERHEAD * (work.operations + BACKWARD * work.behind) / limits.speed
        columns = min(COLUMNS, max(LEAST_COLUMNS, power_of_two(share / column)))
        seconds += columns * column
        if exact <= min(seconds, share) and not too_large:  # a draw runs all that is before a head, say
            return _exact(name, exact)
    why = TOO_LARGE if too_large else TOO_LONG.format(exact=readable_seconds(exact))
    return PlannedStage(name=name, form="sampled", samples=samples, columns=columns, seconds=seconds, why=why)


def _exact(name: str, seconds: float) -> PlannedStage:
    return PlannedStage(name=name, seconds=seconds + START * (name == "forward"))


def _in_one_form(stages: list[PlannedStage], work: Workload) -> list[PlannedStage]:
    """What rests on the same records goes the same way: without the exact curvature of the layers nothing has any."""
    curvature = next(stage for stage in stages if STAGES[stage.name].columns)
    if curvature.form == "exact":
        return stages
    found = []
    for stage in stages:
        demand = STAGES[stage.name]
        if demand.rests_on == curvature.name:
            stage = replace(stage, form=curvature.form, columns=curvature.columns, why=curvature.why)
        elif demand.sampled is not None and stage.form == "exact":
            samples = min(demand.sampled.most, work.samples)
            stage = replace(stage, form="sampled", samples=samples, why=f"as {curvature.name} is")
        found.append(stage)
    return found


def _with_what_is_beside(stage: PlannedStage, work: Workload, speed: float) -> PlannedStage:
    """With the time that a sampled form takes however many its samples."""
    beside = STAGES[stage.name].beside
    if stage.form != "sampled" or beside is None:
        return stage
    return replace(stage, seconds=stage.seconds + OVERHEAD * beside(stage, work) / speed)
