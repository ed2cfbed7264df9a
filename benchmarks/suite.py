"""The whole suite against its floor: one forward and C backward passes over the same train samples."""

from __future__ import annotations

import time
from statistics import median

from audit.checks import run_checks
from audit.measures.suite import run_suite
from audit.run.progress import Progress
from benchmarks.cases import Case
from benchmarks.clock import LEAST_ROUNDS, Spread, quickest, seconds
from benchmarks.least import least_directions
from benchmarks.tasks import FLOOR


def time_suite(case: Case, rounds: int, patience: float) -> dict[str, object]:
    """Seconds of the floor, of `run_suite` (stage by stage) and of `run_checks`, in turn; and the ratios to the floor.

    Beside them, the floor with the least that the Hessian's directions can add to it. Loading, reading and the table's
    own forward passes come before and are not counted, rendering comes after.
    """
    how = quickest(FLOOR, case)
    floor = FLOOR.prepare(case, how.chunk, how.form)
    directions = least_directions(case)
    floor(), directions(), _suite(case)  # warm-up
    floors, leasts, suites, checks, stages = [], [], [], [], []
    begin = time.perf_counter()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - begin > patience:
            break
        before = seconds(floor)
        suite, check, timings = _suite(case)
        floors.append((before + seconds(floor)) / 2)  # load that comes or goes meanwhile counts half
        leasts.append(floors[-1] + seconds(directions))
        suites.append(suite)
        checks.append(check)
        stages.append(timings)
    return {
        "case": case.name,
        "samples": len(case.x),
        "chunk": how.chunk,
        "form": how.form,
        "floor_seconds": floors,
        "least_seconds": leasts,
        "suite_seconds": suites,
        "checks_seconds": checks,
        "least": _ratio(leasts, floors),
        "suite": _ratio(suites, floors),
        "checks": _ratio(checks, floors),
        "stages": {name: median(part[name] for part in stages) / median(floors) for name in stages[0]},
    }


def _suite(case: Case) -> tuple[float, float, dict[str, float]]:
    """Seconds of the suite, of the checks, and of the suite's stages by their share of its time, on a fresh table."""
    audit, progress = case.audit(), Progress()
    found = []
    suite = seconds(lambda: found.append(run_suite(audit, progress)))
    total = sum(progress.timings.values())
    stages = {name: suite * wall / total for name, wall in progress.timings.items()}
    return suite, seconds(lambda: run_checks(audit, found[0])), stages


def _ratio(above: list[float], below: list[float]) -> dict[str, float]:
    spread = Spread.of([a / b for a, b in zip(above, below, strict=True)])
    return {"median": spread.median, "least": spread.least, "most": spread.most}
