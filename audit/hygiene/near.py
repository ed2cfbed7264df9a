"""Test samples that are almost a train sample: far closer to one than chance would bring them.

Around a point the density is nearly even; then the volume within its nearest neighbour's distance r₁, as a share of that
within the k-th's, is the smallest of k − 1 even draws: P(r₁/r_k < t) = 1 − (1 − t^d)^(k−1), with d the dimension that the
samples locally fill. d is taken from the outer half of the neighbours (mean of ln(r_k/r_j) = (1/j + … + 1/(k−1))/d), which
near copies do not reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.hygiene.neighbours import Electorate, Space, look_around

EXPECTED = 0.05  # near twins that chance alone may show in the whole test split
CLOSEST = 0.25  # however many dimensions there are, a near twin is at least four times closer than the k-th neighbour
YARDSTICK = 1000  # train samples that are looked at to see how common near twins are within train
FEWEST = 5  # different train inputs below which there is no neighbourhood to compare with


@dataclass(frozen=True)
class NearTwins:
    """The near twins found."""

    flags: Tensor  # [q] which of the points
    nearest: Tensor  # [q] position in train of the nearest sample
    ratio: Tensor  # [q] r₁/r_k
    distance: Tensor  # [q] r₁
    dimension: float
    threshold: float
    within_train: float  # share of train samples with such a twin in train


def find_near_twins(space: Space, points: Tensor, tests: int, voters: Electorate, seed: int) -> NearTwins:
    """Near twins of the points [q, D], none of which is itself in train; `tests`: how many samples the split has."""
    around = look_around(space, points, voters)
    dimension = local_dimension(around.distance)
    threshold = closeness(dimension, around.distance.shape[1], tests)
    ratio = _ratio(around.distance)
    generator = torch.Generator().manual_seed(seed)
    own = torch.randperm(len(voters.rows), generator=generator)[:YARDSTICK].to(voters.rows.device)
    inside = look_around(space, space.train[voters.rows[own]], voters, own)
    within = float((_ratio(inside.distance) < threshold).double().mean())
    return NearTwins(
        ratio < threshold, around.nearest[:, 0], ratio, around.distance[:, 0], dimension, threshold, within
    )


def local_dimension(distance: Tensor) -> float:
    """d from sorted distances [q, k]: the harmonic sum of the outer half over the mean of ln(r_k/r_j); ∞ if all equal."""
    k = distance.shape[1]
    j = (k + 1) // 2
    inner, outer = distance[:, j - 1], distance[:, -1]
    usable = inner > 0
    spread = float((outer[usable] / inner[usable]).log().mean()) if bool(usable.any()) else 0.0
    return sum(1 / i for i in range(j, k)) / spread if spread > 0 else math.inf


def closeness(dimension: float, k: int, tests: int) -> float:
    """t with 1 − (1 − t^d)^(k−1) = 0.05 / tests, at most 1/4."""
    volume = -math.expm1(math.log1p(-EXPECTED / max(1, tests)) / (k - 1))
    return min(CLOSEST, volume ** (1 / dimension))


def _ratio(distance: Tensor) -> Tensor:
    outer = distance[:, -1]
    return torch.where(outer > 0, distance[:, 0] / outer.where(outer > 0, torch.ones_like(outer)), 1.0)
