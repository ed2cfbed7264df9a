"""Makes the plan of an audit: what is measured on all samples, and what on how many, within a time and a memory budget.

Everything is counted, not timed: the operations of each form over a coarse speed of the machine, a power of two, so
that two runs on one machine make the same plan. If all exact forms fit the budget together, all are taken. Otherwise a
stage stays exact only where that costs next to nothing, and the others are sampled, each with as many samples, in
powers of two, as its share of the budget allows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from audit.errors import UsageError
from audit.report.conduct import (
    CONSEQUENCES,
    FEW_LAYERS,
    MOST_LAYERS,
    MOST_TESTS,
    TESTS_PER_TRAIN,
    Plan,
    PlannedStage,
    readable_seconds,
)
from audit.run.operations import (
    BACKWARD,
    OVERHEAD,
    Workload,
    exact_bytes,
    exact_operations,
    stage_bytes,
    without_network,
)
from audit.settings import Settings

SECONDS = {"": 1.0, "S": 1.0, "M": 60.0, "H": 3600.0}
FITS = 0.8  # of the budget, that the exact forms may be predicted to take together
NEXT_TO_NOTHING = 0.05  # of the budget: an exact form below it is taken also where not all are
ALWAYS_THERE = 64 << 20  # bytes that the exact curvature of a small layer may take, however little is allowed
START = 4.5  # seconds that loading, reading, drawing and everything small take
DRAWS, DRAWN = 64, 1800.0  # of random signs, and what one takes for each weight: its gradient is read several times
PAIRED_COLUMNS = 3000.0  # operations of an entry of a Gram matrix of columns until its eigenpairs are found
SPREAD = 25.0  # operations of a sample's curvature in its scores, in squares of their number
WALKED = 32_000  # forward passes along the leading directions of a layer
PROBED = 35.0  # passes from a layer on: what its second derivatives take in the checks of a curved network's sample
DOUBLE_CONVOLUTIONS = 4.0  # how much slower convolutions are in double precision than matrix products

SHARES = {"flatness": 0.35, "fisher": 0.2, "sensitivity": 0.25, "checks": 0.05}  # of the budget, for what is sampled
MOST_SAMPLES = {"flatness": 2048, "fisher": 256, "sensitivity": 256, "checks": 8}
LEAST_SAMPLES = {"flatness": 64, "fisher": 16, "sensitivity": 8, "checks": 2}
COLUMNS, LEAST_COLUMNS = 4096, 512  # of a layer with one vector per sample; of one over tokens a sixteenth
LEAST_TESTS = 16
MOST_HELD = {"flatness": 0.5, "duality": 0.5, "fisher": 0.2}  # of the memory, by what can be done in several turns
CHANGES_SHARE, LARGEST_SHARE = 0.05, 0.1  # of the budget, beside that of all others; beyond the second, left out
CHANGED_INPUTS = {False: 18.0, True: 7.0}  # passes with changed inputs or all weights rounded; where it is brief
CHANGED_LAYERS = {False: 32.0 * MOST_LAYERS, True: 4.0 * FEW_LAYERS}  # from a layer on: half of all, on average
OF_LAYERS = ("flatness", "duality")
ORDER = (  # of the stages in a plan
    *("forward", "gap", "calibration", CONSEQUENCES, "flatness", "duality", "fisher", "sensitivity", "hygiene"),
    "checks",
)
TOO_LONG = "all samples would take about {exact}, more than --budget leaves"
ENOUGH_TESTS = "as many tell it closely enough"
TOO_LARGE = "the exact form would take more memory than --memory leaves"
QUICK = "Left out by --quick."
PADDED = "Left out: the scores at positions without a label, of which nothing is asked, would count like the others."


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
    exact = exact_operations(work, settings)
    if settings.quick:
        exact = {name: operations for name, operations in exact.items() if name in ("start", "forward", *OF_LAYERS)}
    if work.tagging:
        exact.pop("sensitivity", None)
    too_large = exact_bytes(work, settings) > max(memory, ALWAYS_THERE)
    beside = [*without_network(work, settings, speeds[1]), *_left_out(work, settings)]
    plan = Plan(
        budget=budget,
        memory=memory,
        arithmetic=settings.precision,
        operations=work.cost.operations,
        quick=settings.quick,
    )
    others = sum(stage.seconds for stage in beside)
    fits = budget is None or sum(exact.values()) / double + others <= FITS * budget
    if fits and not too_large:
        stages = [_exact(name, operations / double) for name, operations in exact.items()]
        stages += [*_small_changes(work, settings, budget, double), *beside]
        return _finished(replace(plan, speed=speeds[0]), stages, work, settings)
    limits = Limits(budget if budget is not None else float("inf"), too_large, single)
    stages = _together([_stage(name, operations / single, work, limits) for name, operations in exact.items()], work)
    stages = [replace(stage, seconds=stage.seconds + _beside(stage, work) / single) for stage in stages]
    stages += [*_small_changes(work, settings, budget, single), *beside]
    return _finished(replace(plan, arithmetic="float32", speed=single), stages, work, settings)


def _finished(plan: Plan, stages: list[PlannedStage], work: Workload, settings: Settings) -> Plan:
    """The plan with its stages in their order; none holds more than it may, whatever it would like to."""
    size = 4 if plan.arithmetic == "float32" else 8
    held = [
        replace(
            stage,
            bytes=min(int(MOST_HELD.get(stage.name, 1.0) * plan.memory), stage_bytes(stage, work, settings, size)),
        )
        for stage in stages
    ]
    return replace(plan, stages=sorted(held, key=lambda stage: ORDER.index(stage.name)))


def _small_changes(work: Workload, settings: Settings, budget: float | None, speed: float) -> list[PlannedStage]:
    """Of inputs and weights: on as many test samples as its own share of the budget allows; no other stage minds."""
    if settings.quick:
        return []
    share = float("inf") if budget is None else CHANGES_SHARE * budget
    full, brief = (_small_changes_on(work, share, speed, brief) for brief in (False, True))
    stage = full if full.seconds <= share or full.tests == work.tests <= LEAST_TESTS else brief
    if budget is not None and stage.seconds > max(LARGEST_SHARE * budget, 1.0):
        why = TOO_LONG.replace("all", f"{stage.tests}").format(exact=readable_seconds(stage.seconds))
        return [PlannedStage(name=CONSEQUENCES, form="skipped", why=why)]
    return [stage]


def _small_changes_on(work: Workload, share: float, speed: float, brief: bool) -> PlannedStage:
    """On as many samples as fit into `share` seconds, but no fewer than a few."""
    layers = min(1.0, len(work.layers) / (FEW_LAYERS if brief else MOST_LAYERS)) * CHANGED_LAYERS[brief]
    passes = CHANGED_INPUTS[brief] * work.cost.operations + layers / 2 * work.cost.behind
    each = OVERHEAD * passes / speed  # seconds of a sample
    tests = min(work.tests, MOST_TESTS, max(LEAST_TESTS, _power_of_two(share / each / (1 + 1 / TESTS_PER_TRAIN))))
    fits = tests == min(work.tests, MOST_TESTS) and not brief
    trains = min(work.samples, _power_of_two((MOST_TESTS if fits else max(LEAST_TESTS, tests)) / TESTS_PER_TRAIN))
    stage = PlannedStage(name=CONSEQUENCES, samples=trains, tests=tests, brief=brief, seconds=(tests + trains) * each)
    if tests == work.tests and not brief:
        return stage
    why = ENOUGH_TESTS if fits else TOO_LONG.format(exact=readable_seconds(work.tests * each))
    return replace(stage, form="sampled", why=why)


@dataclass(frozen=True)
class Limits:
    """What a stage must keep to."""

    budget: float  # seconds of the whole audit
    too_large: bool  # whether the exact curvature of the layers does not fit into memory
    speed: float  # operations per second in single precision


def _left_out(work: Workload, settings: Settings) -> list[PlannedStage]:
    why = dict.fromkeys((CONSEQUENCES, "fisher", "sensitivity", "checks"), QUICK) if settings.quick else {}
    why |= {"sensitivity": PADDED} if work.tagging else {}
    return [PlannedStage(name=name, form="skipped", why=reason) for name, reason in why.items()]


def _together(stages: list[PlannedStage], work: Workload) -> list[PlannedStage]:
    """What rests on the same records goes the same way: without the exact curvature of the layers nothing has any."""
    flatness = next(stage for stage in stages if stage.name == "flatness")
    if flatness.form == "exact":
        return stages
    found = []
    for stage in stages:
        if stage.name == "duality":
            stage = replace(stage, form=flatness.form, columns=flatness.columns, why=flatness.why)
        elif stage.name in SHARES and stage.form == "exact":
            samples = min(MOST_SAMPLES[stage.name], work.samples)
            stage = replace(stage, form="sampled", samples=samples, why="as flatness is")
        found.append(stage)
    return found


def _beside(stage: PlannedStage, work: Workload) -> float:
    """Operations of a sampled form that do not grow with its samples."""
    if stage.form != "sampled":
        return 0.0
    F, weights = work.cost.operations, sum(layer.in_features * layer.out_features for layer in work.layers)
    inner = any(layer.cut_point for layer in work.layers[:-1])
    spectra = sum(
        min(layer.in_features, layer.out_features) * layer.in_features * layer.out_features for layer in work.layers
    )
    columns = stage.columns**2 * sum(
        layer.in_features + layer.out_features for layer in work.layers if layer.tokens == 1
    )
    grams = PAIRED_COLUMNS * stage.columns**2 * sum(layer.tokens == 1 for layer in work.layers)
    parts = {
        "flatness": DRAWS * DRAWN * weights + 2 * columns + grams + SPREAD * work.samples * work.outputs**2,
        "duality": WALKED * F * inner,
        "sensitivity": 4 * spectra,
        "checks": DRAWS / 2 * DRAWN * weights,
    }
    return OVERHEAD * parts.get(stage.name, 0.0)


def _stage(name: str, exact: float, work: Workload, limits: Limits) -> PlannedStage:
    """The exact form where it costs next to nothing or there is no other; else the sampled one."""
    too_large = name == "flatness" and limits.too_large
    if name not in SHARES or (exact <= NEXT_TO_NOTHING * limits.budget and not too_large):
        return _exact(name, exact)
    each, share = _sampled_seconds(name, work, limits.speed), SHARES[name] * limits.budget
    samples = min(MOST_SAMPLES[name], max(LEAST_SAMPLES[name], _power_of_two(share / each)), work.samples)
    columns, seconds = 0, samples * each
    if name == "flatness":
        column = OVERHEAD * (work.cost.operations + BACKWARD * work.cost.behind) / limits.speed
        columns = min(COLUMNS, max(LEAST_COLUMNS, _power_of_two(share / column)))
        seconds += columns * column
        if exact <= min(seconds, share) and not too_large:  # a draw runs all that is before a head, say
            return _exact(name, exact)
    why = TOO_LARGE if too_large else TOO_LONG.format(exact=readable_seconds(exact))
    return PlannedStage(name=name, form="sampled", samples=samples, columns=columns, seconds=seconds, why=why)


def _exact(name: str, seconds: float) -> PlannedStage:
    return PlannedStage(name=name, seconds=seconds + START * (name == "forward"))


def _sampled_seconds(name: str, work: Workload, speed: float) -> float:
    """Of one sample in the sampled form of a stage."""
    F, C = work.cost.operations, work.outputs
    passes = {
        "flatness": F + 2 * BACKWARD * F,
        "fisher": 4 * (F + BACKWARD * F) + work.gradient,
        "sensitivity": F + min(C, 40) * BACKWARD * F,
        "checks": 4 * F + (4 * min(C, 40) * BACKWARD + PROBED * work.curved * len(work.layers)) * work.cost.behind,
    }
    return OVERHEAD * passes[name] / speed


def _power_of_two(value: float) -> int:
    """The largest power of two that is no larger."""
    return 1 << max(0, min(int(min(value, 2.0**40)), 1 << 40).bit_length() - 1)
