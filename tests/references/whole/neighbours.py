"""The spaces that neighbours are looked for in, and how well they foretell what test samples are labelled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from references import hygiene as loops
from references.hygiene import Row
from references.whole.problem import Problem, mean


@dataclass(frozen=True)
class Space:
    """Samples as points."""

    name: str
    train: list[Row]
    test: list[Row]
    fresh: list[int]  # test samples that are not in train
    agreement: float  # share of their labels that win the vote; for regression minus the squared error


def spaces_of(p: Problem, train: list[Row], test: list[Row]) -> list[Space]:
    """The input standardised and as fed, unless it is made of whole numbers, and what the last layer is given."""
    fresh = [t for t, row in enumerate(test) if row not in train]
    last = p.dense[-1]
    given, given_test = ([tuple(p.given(last, x).flatten().tolist()) for x in each] for each in (p.x, p.x_test))
    found = []
    if p.x.is_floating_point():
        found.append(("standardised input", loops.standardise(train, train), loops.standardise(train, test)))
        found.append(("input", train, test))
    if given != train:
        found.append(("features", given, given_test))
    return [Space(name, a, b, fresh, _agreement(p, a, b, fresh)) for name, a, b in found]


def best(spaces: list[Space]) -> Space:
    """Of equally good ones the first."""
    return max(spaces, key=lambda space: space.agreement)


def chosen(spaces: list[Space], interval: Callable[[float, int], list[float]]) -> Space:
    """The better input, unless the features clearly halve its disagreement."""
    inputs, winner = [space for space in spaces if space.name != "features"], best(spaces)
    if not inputs:
        return winner
    plain = best(inputs)
    halved = 1 - winner.agreement <= (1 - plain.agreement) / 2
    return winner if halved and interval(winner.agreement, len(winner.fresh))[0] > plain.agreement else plain


def _agreement(p: Problem, train: list[Row], test: list[Row], fresh: list[int]) -> float:
    if p.task == "regression":
        return -mean([_error(p, train, test[t], t) for t in fresh])
    voters = list(zip(train, p.y.tolist(), strict=True))
    return 1 - mean([loops.outvoted(loops.votes(test[t], voters), int(p.y_test[t])) for t in fresh])


def _error(p: Problem, train: list[Row], row: Row, t: int) -> float:
    """Squared error of the neighbours' mean target."""
    distances = [math.dist(row, other) for other in train]
    radius = sorted(distances)[9]
    near = [i for i, distance in enumerate(distances) if distance <= radius * (1 + 1e-9)]
    return float((p.y[near].reshape(len(near), -1).mean(0) - p.y_test[t].reshape(-1)).square().sum())
