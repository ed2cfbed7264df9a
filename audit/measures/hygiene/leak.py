"""How much of the test split is copied from train, and does it void the verdict?

Evidence are twins with the same label that chance does not explain: those that resemble no other train row even in
parts, or, where rows repeat by nature, the excess over the share of repeated rows within train.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.intervals import standard_error
from audit.maths.resample import Bootstrap, interval
from audit.maths.shares import wilson
from audit.measures.gap.measure import measure_gap
from audit.measures.hygiene.block import GapWithout, Leak, NearDuplicates, NearTwin
from audit.measures.hygiene.duplicates import PAIRS, Twins
from audit.measures.hygiene.neighbours import Search
from audit.measures.hygiene.samples import Samples, Tried
from audit.network.records import Outcome
from audit.report.fields import Interval

VOID = 0.1  # share of unexplained copies, at the lower end of its interval, that voids the verdict
ENOUGH = 0.01  # … and that does so if leaving the copies out moves the gap
Flags = NDArray[np.bool_]


def find_leak(
    twins: Twins, chance: Flags, train: Outcome, test: Outcome, searched: float, bootstrap: Bootstrap
) -> Leak:
    """`chance` [m]: twins that may be coincidence; `searched`: share of the train samples on disk that were used."""
    copied, answer = twins.across_same_label, _answer(test)
    share, natural = float(copied.mean()), float(twins.repeated_in_train.mean())
    unexplained = float((copied & ~chance).mean())
    unexplained_ci95 = wilson(unexplained, len(copied))
    beyond = wilson(share, len(copied))[0] - wilson(natural, len(twins.train_x))[1]
    lowest = 1.0 if twins.same_samples() else max(unexplained_ci95[0], beyond) / searched
    without = _gap_without(copied, train, test, bootstrap)
    moved = without is not None and without.moved and lowest >= ENOUGH
    return Leak(
        share=share,
        share_ci95=wilson(share, len(copied)),
        copies=int(copied.sum()),
        coincidences=int((copied & chance).sum()),
        repeated_within_train=natural,
        repeated_within_train_ci95=wilson(natural, len(twins.train_x)),
        unexplained_share=unexplained,
        unexplained_share_ci95=unexplained_ci95,
        searched=searched,
        estimated_share=min(1.0, share / searched),
        estimated_share_ci95=_over(wilson(share, len(copied)), searched),
        void=lowest >= VOID or moved,
        why=_why(twins, int((copied & ~chance).sum()), lowest, moved, searched, answer),
        without_copies=without,
        skipped=None if without else _no_gap(copied, answer),
    )


def _over(ends: tuple[float, float], searched: float) -> tuple[float, float]:
    return min(1.0, ends[0] / searched), min(1.0, ends[1] / searched)


def _gap_without(copied: Flags, train: Outcome, test: Outcome, bootstrap: Bootstrap) -> GapWithout | None:
    """The gap with the copied test samples left out, beside the interval of the gap with them."""
    if not copied.any() or copied.all():
        return None
    whole = measure_gap(train, test, None, bootstrap)
    fresh = measure_gap(train, _only(test, ~copied), None, bootstrap)
    moved = _outside(fresh.loss_gap, whole.loss_gap_ci95) or _outside(fresh.error_gap, whole.error_gap_ci95)
    return GapWithout(
        samples=int((~copied).sum()),
        loss_gap=fresh.loss_gap,
        loss_gap_ci95=fresh.loss_gap_ci95,
        error_gap=fresh.error_gap,
        error_gap_ci95=fresh.error_gap_ci95,
        loss_gap_shift=fresh.loss_gap - whole.loss_gap,
        error_gap_shift=None
        if fresh.error_gap is None or whole.error_gap is None
        else fresh.error_gap - whole.error_gap,
        loss_gap_shift_ci95=_shift_interval(test.loss, None, copied, bootstrap),
        error_gap_shift_ci95=None if test.wrong is None else _shift_interval(test.wrong, test.asked, copied, bootstrap),
        moved=moved,
    )


def _answer(test: Outcome) -> str:
    """What a sample comes with."""
    return "target" if test.wrong is None else "label" if test.asked is None else "labels"


def _shift_interval(
    values: NDArray[np.float64], asked: NDArray[np.float64] | None, copied: Flags, bootstrap: Bootstrap
) -> Interval:
    """Of the mean over the samples that are no copies, minus the mean over all; over answers where it says how many."""
    fresh = (~copied).astype(np.float64)
    columns = [values, values * fresh, fresh] if asked is None else [values, values * fresh, asked * fresh, asked]
    everything, without, share, *whole = bootstrap.means(np.stack(columns, 1)).T
    some = share > 0
    mean = everything / whole[0] if whole else everything
    return interval(without[some] / share[some] - mean[some])


def _only(outcome: Outcome, rows: Flags) -> Outcome:
    wrong, asked = (None if part is None else part[rows] for part in (outcome.wrong, outcome.asked))
    scores, labels, loss = outcome.scores[rows], outcome.labels[rows], outcome.loss[rows]
    return replace(outcome, scores=scores, labels=labels, loss=loss, wrong=wrong, asked=asked)


def _outside(value: float | None, ends: Interval) -> bool:
    return value is not None and ends is not None and not ends[0] <= value <= ends[1]


def _no_gap(copied: Flags, answer: str) -> str:
    if copied.any():
        return f"Every test sample is in train with the same {answer}: none is left to measure a gap on."
    return f"No test sample is in train with the same {answer}: the gap without copies is the gap."


def _why(twins: Twins, unexplained: int, lowest: float, moved: bool, searched: float, answer: str) -> str:
    """`answer` is what a sample comes with: a label, or the target of a regression."""
    tests, found = len(twins.test_x), int(twins.across_same_label.sum())
    part = "" if searched == 1 else f" (only {searched:.1%} of the train samples were searched)"
    if twins.same_samples():
        return "Train and test hold the very same samples: the test split says nothing about new data."
    if lowest >= VOID:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}, more than chance "
            "explains: the test split is no evidence about new data."
        )
    if moved:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}, and without them the gap "
            "lies outside its own 95 % interval: the reported gap misleads."
        )
    if not found:
        return f"No test sample is in train with the same {answer}{part}."
    if not unexplained:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}: in data with so few "
            "different values that is chance."
        )
    return (
        f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}: too few to change the verdict."
    )


# Test samples that are almost a train sample: far closer to one than chance would bring them.
#
# Where the density around a point is nearly even, the volume within the distance r₁ of its nearest neighbour, as a
# share of that within r_k, is the smallest of k − 1 even draws: P(r₁/r_k < t) = 1 − (1 − t^d)^(k−1), with d the
# dimension that the samples locally fill. d is taken from the outer half of the neighbours, out of reach of a few near
# copies: the mean of ln(r_k/r_j) is (1/j + … + 1/(k−1))/d.


EXPECTED = 0.05  # near twins that chance alone may show in the whole test split
CLOSEST = 1 / 3  # however many dimensions there are, a near twin is at least three times closer than the k-th neighbour
YARDSTICK = 1000  # train samples that are looked at to see how common near twins are within train
FEWEST = 5  # different train inputs below which there is no neighbourhood to compare with
TOKENS = "The inputs are whole numbers such as tokens: a distance between them means nothing."
NONE_FRESH = "Every test sample is itself in train."
FEW_DISTINCT = f"Fewer than {FEWEST} different train inputs: there is no neighbourhood to compare with."


def near_duplicates(samples: Samples) -> tuple[int | None, NearDuplicates]:
    """How many near twins there are, and the closest of them."""
    why = None
    if len(samples.voters.rows) < FEWEST:
        why = FEW_DISTINCT
    elif not len(samples.fresh):
        why = NONE_FRESH
    elif samples.input_space is None:
        why = TOKENS
    if why is not None or samples.input_space is None:
        return None, NearDuplicates(skipped=why)
    tried, seed = samples.input_space, samples.audit.settings.seed
    found = find_near_twins(tried, len(samples.audit.test), seed)
    return int(found.flags.sum()), NearDuplicates(
        space=tried.space.name,
        dimension=found.dimension if math.isfinite(found.dimension) else None,
        dimension_std=found.dimension_error if math.isfinite(found.dimension_error) else None,
        threshold=found.threshold,
        within_train=found.within_train,
        within_train_ci95=None if found.within_train is None else wilson(found.within_train, found.looked_at),
        pairs=_near_pairs(samples, found),
    )


def _near_pairs(samples: Samples, found: NearTwins) -> list[NearTwin]:
    points = torch.nonzero(found.flags)[:, 0]
    points = points[found.ratio[points].argsort(dim=0, stable=True)][:PAIRS]
    tests, trains = samples.fresh[points].tolist(), found.nearest[points].tolist()
    ratios, distances = found.ratio[points].tolist(), found.distance[points].tolist()
    return [
        NearTwin(
            train=int(samples.train_index[train]),
            test=int(samples.test_index[test]),
            same_label=bool(samples.twins.train_y[train] == samples.twins.test_y[test]),
            distance=distance,
            ratio=ratio,
        )
        for train, test, ratio, distance in zip(trains, tests, ratios, distances, strict=True)
    ]


@dataclass(frozen=True)
class NearTwins:
    """The near twins found."""

    flags: Tensor  # [q] which of the test samples that are not in train
    nearest: Tensor  # [q] position in train of the nearest sample
    ratio: Tensor  # [q] r₁/r_k
    distance: Tensor  # [q] r₁
    dimension: float
    dimension_error: float  # standard error
    threshold: float
    within_train: float | None  # share of train samples with such a twin in train; None where test has none
    looked_at: int  # train samples behind within_train


def find_near_twins(tried: Tried, tests: int, seed: int) -> NearTwins:
    """Near twins among the test samples that are not in train; `tests`: how many samples the split has."""
    around = tried.around_test
    assert around is not None  # the caller made sure that there are such samples
    dimension, error = local_dimension(around.distance)
    threshold = closeness(dimension, around.distance.shape[1], tests)
    ratio = _ratio(around.distance)
    close = ratio < threshold
    within = _share_within_train(tried.search, threshold, seed) if bool(close.any()) else None
    return NearTwins(
        flags=close,
        nearest=around.nearest[:, 0],
        ratio=ratio,
        distance=around.distance[:, 0],
        dimension=dimension,
        dimension_error=error,
        threshold=threshold,
        within_train=within,
        looked_at=min(YARDSTICK, len(tried.search.voters.rows)),
    )


def _share_within_train(search: Search, threshold: float, seed: int) -> float:
    """Share of train samples, a thousand at most, with a near twin within train."""
    rows = search.voters.rows
    own = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:YARDSTICK]
    own = own.to(rows.device)
    around = search.around(search.space.train, rows[own], own)
    return float((_ratio(around.distance) < threshold).double().mean())


def local_dimension(distance: Tensor) -> tuple[float, float]:
    """The d of sorted distances [q, k], ∞ where all are equal, and its standard error."""
    k = distance.shape[1]
    j = (k + 1) // 2
    inner, outer = distance[:, j - 1], distance[:, -1]
    logs = (outer[inner > 0] / inner[inner > 0]).log()
    spread = float(logs.mean()) if len(logs) else 0.0
    if spread <= 0:
        return math.inf, math.inf
    dimension = sum(1 / i for i in range(j, k)) / spread
    return dimension, dimension / spread * float(standard_error(logs))


def closeness(dimension: float, k: int, tests: int) -> float:
    """The t with 1 − (1 − t^d)^(k−1) = 0.05 / tests, at most 1/3."""
    volume = -math.expm1(math.log1p(-EXPECTED / max(1, tests)) / (k - 1))
    return min(CLOSEST, math.exp(math.log(volume) / dimension))


def _ratio(distance: Tensor) -> Tensor:
    outer = distance[:, -1]
    return torch.where(outer > 0, distance[:, 0] / outer.where(outer > 0, torch.ones_like(outer)), 1.0)
