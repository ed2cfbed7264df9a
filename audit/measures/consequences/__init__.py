"""What small changes of the inputs and of the weights do to the answers."""

from __future__ import annotations

from dataclasses import replace

from audit.measures.workload import OVERHEAD, TOO_LONG, Demand, Workload, power_of_two
from audit.report.conduct import PlannedStage, readable_seconds

NAME = "consequences"
MOST_TESTS, LEAST_TESTS = 1024, 16  # test samples that are looked at
TESTS_PER_TRAIN = 4  # of them, to one train sample
MOST_LAYERS, FEW_LAYERS = 12, 3  # whose weights are changed; where time is short
SHARE, LARGEST_SHARE = 0.05, 0.1  # of the budget, beside that of all others; beyond the second, left out
CHANGED_INPUTS = {False: 18.0, True: 7.0}  # passes with changed inputs or all weights rounded; where it is brief
CHANGED_LAYERS = {False: 32.0 * MOST_LAYERS, True: 4.0 * FEW_LAYERS}  # from a layer on: half of all, on average
CHANGED_WEIGHTS = {False: 40_000.0, True: 12_000.0}  # operations for each weight: random changes are drawn one by one
ENOUGH_TESTS = "as many tell it closely enough"


def plan_small_changes(work: Workload, budget: float | None, speed: float) -> PlannedStage:
    """Of inputs and weights: on as many test samples as its own share of the budget allows; no other stage minds."""
    share = float("inf") if budget is None else SHARE * budget
    full, brief = (_planned(work, share, speed, brief) for brief in (False, True))
    stage = full if full.seconds <= share or full.tests == work.tests <= LEAST_TESTS else brief
    if budget is not None and stage.seconds > max(LARGEST_SHARE * budget, 1.0):
        why = TOO_LONG.replace("all", f"{stage.tests}").format(exact=readable_seconds(stage.seconds))
        return PlannedStage(name=NAME, form="skipped", why=why)
    return stage


def _planned(work: Workload, share: float, speed: float, brief: bool) -> PlannedStage:
    """On as many samples as fit into `share` seconds, but no fewer than a few."""
    layers = min(1.0, len(work.layers) / (FEW_LAYERS if brief else MOST_LAYERS)) * CHANGED_LAYERS[brief]
    passes = CHANGED_INPUTS[brief] * work.operations + layers / 2 * work.behind
    each = OVERHEAD * passes / speed  # seconds of a sample
    tests = min(work.tests, MOST_TESTS, max(LEAST_TESTS, power_of_two(share / each / (1 + 1 / TESTS_PER_TRAIN))))
    fits = tests == min(work.tests, MOST_TESTS) and not brief
    trains = min(work.samples, power_of_two((MOST_TESTS if fits else max(LEAST_TESTS, tests)) / TESTS_PER_TRAIN))
    seconds = (tests + trains) * each + CHANGED_WEIGHTS[brief] * work.weights / speed
    stage = PlannedStage(name=NAME, samples=trains, tests=tests, brief=brief, seconds=seconds)
    if tests == work.tests and not brief:
        return stage
    why = ENOUGH_TESTS if fits else TOO_LONG.format(exact=readable_seconds(work.tests * each))
    return replace(stage, form="sampled", why=why)


DEMAND = Demand(alone=plan_small_changes, quick=False)
