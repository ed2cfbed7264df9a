"""Labels at positions the slow way: python loops over samples and positions, samples drawn whole."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from references.gap import cross_entropy, mean
from torch import Tensor, nn

Rows = Sequence[Sequence[Sequence[float]]]  # scores by sample, position and class
Tags = Sequence[Sequence[int]]  # by sample and position; negative: none


def losses(scores: Rows, tags: Tags) -> list[float]:
    """Of each sample: the mean over its labelled positions."""
    return [
        mean([cross_entropy(f, y) for f, y in zip(rows, own, strict=True) if y >= 0])
        for rows, own in zip(scores, tags, strict=True)
    ]


def mistakes(scores: Rows, tags: Tags) -> list[list[bool]]:
    """Of each sample: whether the answer at each labelled position is wrong."""
    return [
        [f.index(max(f)) != y for f, y in zip(rows, own, strict=True) if y >= 0]
        for rows, own in zip(map(list, scores), tags, strict=True)
    ]


def share(clusters: Sequence[Sequence[bool]]) -> float:
    return sum(map(sum, clusters)) / sum(map(len, clusters))


def share_draws(clusters: Sequence[Sequence[bool]], draws: int, seed: int = 0) -> list[float]:
    """Shares under draws of whole samples, lowest first."""
    rng = random.Random(seed)
    return sorted(share(rng.choices(clusters, k=len(clusters))) for _ in range(draws))


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    return values[int(0.025 * len(values))], values[int(0.975 * len(values))]


def mean_loss(f: Tensor, y: Tensor) -> Tensor:
    """Of scores f [n, T, C] and tags y [n, T], to be differentiated."""
    each = [nn.functional.cross_entropy(rows[own >= 0], own[own >= 0]) for rows, own in zip(f, y, strict=True)]
    return torch.stack(each).mean()


def wild_errors(excess: Sequence[Sequence[tuple[int, float]]], bins: int, draws: int) -> list[float]:
    """Calibration errors under random signs of samples; `excess`: bin and c − r of each position, by sample."""
    rng, total = random.Random(0), sum(map(len, excess))
    held = [[e for own in excess for bin, e in own if bin == place] for place in range(bins)]
    centre = [mean(values) for values in held]
    found = []
    for _ in range(draws):
        sums = [0.0] * bins
        for own in excess:
            sign = rng.choice((-1, 1))
            for bin, e in own:
                sums[bin] += sign * (e - centre[bin])
        found.append(math.fsum(map(abs, sums)) / total)
    return found
