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

from audit.curvature.hessian import DENSE_LIMIT
from audit.errors import UsageError
from audit.network.cost import Cost
from audit.network.layers import DenseLayer
from audit.report.plan import Plan, PlannedStage, readable_seconds
from audit.settings import Settings

SECONDS = {"": 1.0, "S": 1.0, "M": 60.0, "H": 3600.0}
FITS = 0.8  # of the budget, that the exact forms may be predicted to take together
NEXT_TO_NOTHING = 0.05  # of the budget: an exact form below it is taken also where not all are
BACKWARD = 2.0  # operations of a backward pass, in those of a forward pass
PRODUCTS = 85  # with a large layer's Hessian until its leading directions have converged
EIGH = 25.0  # operations of an eigendecomposition, in cubes of the side
SECOND = 6.0  # operations of a second derivative, in those of a forward pass
ALWAYS_THERE = 64 << 20  # bytes that the exact curvature of a small layer may take, however little is allowed
CHECKED = 64  # samples that the exact self-checks look at
PARITY = 200  # passes of one sample that show the network to be that of its file
OVERHEAD = 2.0  # of what is not counted: copies, small matrices, intervals
DOUBLE_CONVOLUTIONS = 4.0  # how much slower convolutions are in double precision than matrix products

SHARES = {"flatness": 0.35, "fisher": 0.2, "sensitivity": 0.25, "checks": 0.05}  # of the budget, for what is sampled
MOST_SAMPLES = {"flatness": 2048, "fisher": 256, "sensitivity": 256, "checks": 8}
LEAST_SAMPLES = {"flatness": 64, "fisher": 16, "sensitivity": 8, "checks": 2}
COLUMNS, LEAST_COLUMNS = 4096, 512  # of a layer with one vector per sample; of one over tokens a sixteenth
OF_LAYERS = ("flatness", "duality")
TOO_LONG = "all samples would take about {exact}, more than --budget leaves"
TOO_LARGE = "the exact form would take more memory than --memory leaves"
QUICK = "Left out by --quick."


@dataclass(frozen=True)
class Workload:
    """What an audit is about, in numbers."""

    samples: int  # n, train
    tests: int
    outputs: int  # C
    cost: Cost  # of one sample's forward pass
    layers: Sequence[DenseLayer]
    curved: bool  # whether the network may be curved behind a layer
    beyond: int  # parameters outside the dense layers
    input_numbers: int  # of one sample; 0 where it has no derivative
    convolves: bool


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
    too_large = exact_bytes(work, settings) > max(memory, ALWAYS_THERE)
    plan = Plan(
        budget=budget,
        memory=memory,
        arithmetic=settings.precision,
        operations=work.cost.operations,
        quick=settings.quick,
    )
    fits = budget is None or sum(exact.values()) / double <= FITS * budget
    if fits and not too_large:
        stages = [PlannedStage(name=name, seconds=operations / double) for name, operations in exact.items()]
        return replace(plan, speed=speeds[0], stages=[*stages, *_left_out(settings)])
    limits = Limits(budget if budget is not None else float("inf"), too_large, single)
    stages = [_stage(name, operations / single, work, limits) for name, operations in exact.items()]
    return replace(plan, arithmetic="float32", speed=single, stages=[*_together(stages, work), *_left_out(settings)])


@dataclass(frozen=True)
class Limits:
    """What a stage must keep to."""

    budget: float  # seconds of the whole audit
    too_large: bool  # whether the exact curvature of the layers does not fit into memory
    speed: float  # operations per second in single precision


def _left_out(settings: Settings) -> list[PlannedStage]:
    names = ("fisher", "sensitivity", "checks") if settings.quick else ()
    return [PlannedStage(name=name, form="skipped", why=QUICK) for name in names]


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


def exact_bytes(work: Workload, settings: Settings) -> int:
    """Memory of the exact curvature: the basis of an iteration over the largest layer, and one sample's Jacobians."""
    weights = max(layer.in_features * layer.out_features for layer in work.layers)
    iteration = 3 * settings.directions * weights if weights > DENSE_LIMIT else 3 * weights**2
    jacobians = work.outputs * sum(layer.tokens * (layer.out_features + layer.in_features) for layer in work.layers)
    return 8 * (iteration + 4 * jacobians)


def exact_operations(work: Workload, settings: Settings) -> dict[str, float]:
    """Each stage on all samples."""
    n, C, F = work.samples, work.outputs, work.cost.operations
    layers = n * C * BACKWARD * work.cost.behind + sum(_layer_operations(layer, work) for layer in work.layers)
    inside = n * C * BACKWARD * (F if work.input_numbers else work.cost.behind)
    algebra = n * (2 * C * C * work.input_numbers + EIGH * C**3 * (1 + len(work.layers)))
    pool = min(n, settings.subsets * settings.subset_size)
    grams = 2 * settings.subsets * settings.subset_size**2 * (work.beyond + _widths(work.layers))
    parts = {
        "forward": (PARITY + n + work.tests) * F,
        "flatness": layers,
        "duality": 2 * work.tests * F + min(work.tests, CHECKED) * F * len(work.layers),
        "fisher": pool * BACKWARD * F + grams,
        "sensitivity": inside + algebra,
        "checks": 4 * min(1.0, CHECKED / n) * layers,
    }
    return {name: OVERHEAD * operations for name, operations in parts.items()}


def _layer_operations(layer: DenseLayer, work: Workload) -> float:
    """What the Hessian of one layer takes, beyond the backward passes."""
    n, C, T = work.samples, work.outputs, layer.tokens
    weights = layer.in_features * layer.out_features
    jacobian = 2 * n * C * T * (weights + C * layer.out_features)
    units = n * T * layer.out_features if work.curved else 0
    if weights <= DENSE_LIMIT:
        hessian = 2.0 * n * C * weights**2 * (T > 1) + EIGH * weights**3 + 2.0 * work.tests * weights**2
        return jacobian + hessian + units * SECOND * work.cost.behind
    product = n * T * 4 * (weights + C * layer.out_features) + (n * SECOND * work.cost.behind if work.curved else 0)
    return jacobian + PRODUCTS * product + min(units, 1e5) * SECOND * work.cost.behind


def _widths(layers: Sequence[DenseLayer]) -> int:
    """Numbers that the gradients' Gram matrices of the dense layers are made of."""
    return sum(
        layer.in_features + layer.out_features if layer.tokens == 1 else layer.in_features * layer.out_features
        for layer in layers
    )


def _stage(name: str, exact: float, work: Workload, limits: Limits) -> PlannedStage:
    """The exact form where it costs next to nothing or there is no other; else the sampled one."""
    too_large = name == "flatness" and limits.too_large
    if name not in SHARES or (exact <= NEXT_TO_NOTHING * limits.budget and not too_large):
        return PlannedStage(name=name, seconds=exact)
    each, share = _sampled_seconds(name, work, limits.speed), SHARES[name] * limits.budget
    samples = min(MOST_SAMPLES[name], max(LEAST_SAMPLES[name], _power_of_two(share / each)), work.samples)
    columns, seconds = 0, samples * each
    if name == "flatness":
        column = OVERHEAD * (work.cost.operations + BACKWARD * work.cost.behind) / limits.speed
        columns = min(COLUMNS, max(LEAST_COLUMNS, _power_of_two(share / column)))
        seconds += columns * column
    why = TOO_LARGE if too_large else TOO_LONG.format(exact=readable_seconds(exact))
    return PlannedStage(name=name, form="sampled", samples=samples, columns=columns, seconds=seconds, why=why)


def _sampled_seconds(name: str, work: Workload, speed: float) -> float:
    """Of one sample in the sampled form of a stage."""
    F, C = work.cost.operations, work.outputs
    passes = {
        "flatness": F + 2 * BACKWARD * F,
        "fisher": F + BACKWARD * F,
        "sensitivity": F + min(C, 40) * BACKWARD * F,
        "checks": 4 * (F + min(C, 40) * BACKWARD * work.cost.behind),
    }
    return OVERHEAD * passes[name] / speed


def _power_of_two(value: float) -> int:
    """The largest power of two that is no larger."""
    return 1 << max(0, min(int(min(value, 2.0**40)), 1 << 40).bit_length() - 1)
