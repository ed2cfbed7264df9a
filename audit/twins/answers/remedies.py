"""What a change of the training did to the test error of this architecture on these data.

The effect is the mean over a kind's twins minus that over the plain ones. Two things make it uncertain, and their
variances add: which twins were made (Welch's two samples), and which test samples there are (all twins answer the same
ones, so the difference is taken sample by sample).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from audit.maths.intervals import LEVEL, normal_quantile, standard_error, student_quantile
from audit.report.twins import Effect, Remedy
from audit.twins.index import TwinSet
from audit.twins.kinds import KINDS, Kind

LEAST = 2  # twins of a kind, and of plain ones
SMALL = 0.05  # of the plain twins' error: what lies within is called no difference

Array = NDArray[np.float64]


def remedies(twins: TwinSet) -> list[Remedy]:
    """Of every kind that an owner could train by, the one that lowered the error most first."""
    tried = [kind for kind in KINDS if kind.remedy]
    plain = _wrong(twins, "plain")
    if len(plain) < LEAST:
        return []
    found = [(kind, wrong) for kind in tried if len(wrong := _wrong(twins, kind.name)) >= LEAST]
    effects = [_remedy(kind, wrong, plain, len(found)) for kind, wrong in found]
    return sorted(effects, key=lambda remedy: remedy.effect)


def _wrong(twins: TwinSet, kind: str) -> Array:
    """[twins, tests] 1 where wrong, 0 where right; the loss for regression."""
    found = [
        one.test
        for twin, one in zip(twins.twins, twins.outcomes, strict=True)
        if (twin.kind, twin.family) == (kind, twins.family)
        and (twin.reached or twin.matched)  # not those that diverged
    ]
    values = np.stack(found) if found else np.empty((0, 0))
    return values if twins.about.task == "regression" else 1 - values


def _remedy(kind: Kind, wrong: Array, plain: Array, tried: int) -> Remedy:
    effect = float(wrong.mean() - plain.mean())
    of_twins = [float(part.mean(1).var(ddof=1)) / len(part) for part in (wrong, plain)]
    of_tests = float(standard_error(wrong.mean(0) - plain.mean(0), ddof=1))
    error = math.hypot(math.sqrt(sum(of_twins)), of_tests)
    t = student_quantile(_freedom(of_twins, of_tests, (len(wrong), len(plain))))
    wide = normal_quantile(LEVEL / 2 / tried) / normal_quantile(LEVEL / 2) * t * error  # for all that were tried
    return Remedy(
        kind=kind.name,
        change=kind.change,
        twins=len(wrong),
        effect=effect,
        ci95=(effect - t * error, effect + t * error),
        verdict=_verdict(effect, wide, float(plain.mean())),
    )


def _freedom(of_twins: list[float], of_tests: float, counts: tuple[int, int]) -> float:
    """Welch's degrees of freedom: those of the test samples are many."""
    known = sum(variance**2 / (count - 1) for variance, count in zip(of_twins, counts, strict=True))
    total = (sum(of_twins) + of_tests**2) ** 2
    return min(1e6, total / known) if known > 0 else 1e6


def _verdict(effect: float, half: float, level: float) -> Effect:
    if effect + half < 0:
        return "helps"
    if effect - half > 0:
        return "hurts"
    return "no difference" if max(abs(effect - half), abs(effect + half)) <= SMALL * level else "cannot tell"
