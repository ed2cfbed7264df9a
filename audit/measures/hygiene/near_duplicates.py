"""Test samples that are almost a train sample: far closer to one than chance would bring them.

Where the density around a point is nearly even, the volume within the distance r₁ of its nearest neighbour, as a share
of that within r_k, is the smallest of k − 1 even draws: P(r₁/r_k < t) = 1 − (1 − t^d)^(k−1), with d the dimension that
the samples locally fill. d is taken from the outer half of the neighbours, out of reach of a few near copies: the mean
of ln(r_k/r_j) is (1/j + … + 1/(k−1))/d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.intervals import standard_error
from audit.maths.shares import wilson
from audit.measures.hygiene.block import NearDuplicates, NearTwin
from audit.measures.hygiene.duplicates import PAIRS
from audit.measures.hygiene.neighbours import Search
from audit.measures.hygiene.samples import Samples, Tried

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
