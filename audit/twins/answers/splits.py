"""Is test like train? Twins on a half of the train samples, on the other half and on test.

Neither the other half nor test was seen, so if both come from one source the twins do as well on one as on the other,
whatever they are good for. The difference of the means over samples has the standard error of two independent samples.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.intervals import normal_quantile, standard_error
from audit.maths.shares import Z95
from audit.report.twins import HeldOut, Verdict
from audit.twins.index import TwinSet

KIND = "half"
LEAST = 2  # twins
RARELY = 0.001  # chance that two splits of one source are called different, to either side
CLEARLY = 0.1  # of the held-out error, that a difference must have to be called one
NOT_MADE = "two or more twins on a half of the train samples are needed"
DOUBT = (
    "twins do better on test than on train samples that they have not seen, as they would if test were easier or "
    "partly in train; but train labels that they contradict account for it"
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """What the twins of a kind do on train samples they were not trained on."""

    rows: NDArray[np.int64]  # [m] positions in train
    values: Array  # [m] share of wrong answers, or the loss, in the mean over the twins that have not seen the sample


def held_out(twins: TwinSet, suspects: Collection[int] = ()) -> HeldOut:
    """The comparison; `suspects` are positions of train samples whose labels are probably wrong."""
    chosen = [
        (twin, outcomes)
        for twin, outcomes in zip(twins.twins, twins.outcomes, strict=True)
        if twin.kind == KIND and twin.family == twins.family
    ]
    if len(chosen) < LEAST:
        return HeldOut(why=NOT_MADE)
    wrong = twins.about.task != "regression"
    seen = not_seen(twins, (KIND,))
    test = np.mean([1 - outcomes.test if wrong else outcomes.test for _, outcomes in chosen], axis=0)
    difference, error = _difference(test, seen.values)
    clean = seen.values[~np.isin(seen.rows, list(suspects))]
    verdict, why = _verdict(difference, error, float(seen.values.mean())), None
    if verdict == "easier" and suspects and _verdict(*_difference(test, clean), float(clean.mean())) != "easier":
        verdict, why = "cannot tell", DOUBT
    return HeldOut(
        held_out=float(seen.values.mean()),
        test=float(test.mean()),
        difference=difference,
        ci95=(difference - Z95 * error, difference + Z95 * error),
        without_suspects=float(clean.mean()) if suspects and len(clean) else None,
        samples=len(seen.rows),
        twins=len(chosen),
        verdict=verdict,
        why=why,
    )


def not_seen(twins: TwinSet, kinds: Collection[str]) -> Seen:
    """Mean outcome of each train sample over the twins of these kinds that have not seen it."""
    parts = [
        outcomes.unseen
        for twin, outcomes in zip(twins.twins, twins.outcomes, strict=True)
        if twin.kind in kinds and twin.family == twins.family
    ]
    rows = np.concatenate([part.rows for part in parts])
    values = np.concatenate([part.outcomes for part in parts])
    found, place, counts = np.unique(rows, return_inverse=True, return_counts=True)
    means = np.bincount(place, values) / counts
    return Seen(found, means if twins.about.task == "regression" else 1 - means)


def _difference(test: Array, train: Array) -> tuple[float, float]:
    """Test minus train, and its standard error."""
    errors = [float(standard_error(part, ddof=1)) for part in (test, train)]
    return float(test.mean() - train.mean()), math.hypot(*errors)


def _verdict(difference: float, error: float, level: float) -> Verdict:
    rare = normal_quantile(RARELY / 2) * error
    if abs(difference) > max(rare, CLEARLY * level):
        return "shifted" if difference > 0 else "easier"
    return "same"
