"""Train labels that disagree with their neighbours: leave-one-out votes, a rule, and the rate beyond chance.

X = share of train labels that are outvoted by another; Y = the same for test samples among their train neighbours. If
test labels are right and a share r of train labels is moved to any other of C classes, X = r (1 − Y/(C−1)) + (1 − r) Y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.resample import interval
from audit.measures.hygiene.neighbours import Electorate, Neighbourhood, look_around
from audit.measures.hygiene.space import Space

Array = NDArray[np.float64]

MAJORITY = 0.5  # share of the neighbours that agree on another label …
DOMINANCE = 4  # … and are at least this many times as many as those that have the given one


@dataclass(frozen=True)
class Tried:
    """A space, and how well the neighbours in it foretell the labels of test samples that are not in train."""

    space: Space
    around_test: Neighbourhood | None  # None: there is no such test sample
    agreement: float | None  # share of labels that win their vote; minus the squared error for regression


@dataclass(frozen=True)
class Votes:
    """The neighbours' votes on the given labels."""

    own: Tensor  # [q] share of the neighbours with the given label
    top: Tensor  # [q] largest share of another label
    label: Tensor  # [q] which one; of equal ones the first

    @property
    def outvoted(self) -> float:
        """Share of labels with fewer votes than another one; a tie counts half, as if a coin were thrown."""
        return float(((self.top > self.own).double() + (self.top >= self.own).double()).mean() / 2)

    @property
    def suspect(self) -> Tensor:
        """Whether the rule calls the label suspect [q]."""
        return (self.top >= MAJORITY) & (self.top >= DOMINANCE * self.own)


def judge(votes: Tensor, y: Tensor) -> Votes:
    """Vote counts [q, C] on given labels [q]."""
    shares = votes / votes.sum(1, keepdim=True).clamp(min=1)
    own = shares.gather(1, y[:, None])[:, 0]
    top, label = shares.scatter(1, y[:, None], -1.0).max(1)
    return Votes(own, top, label)


def try_spaces(spaces: Sequence[Space], fresh: Tensor, y: Tensor, voters: Electorate, classes: bool) -> list[Tried]:
    """Each space with its votes on the fresh test samples (positions [q], labels y [q] or [q, C])."""
    return [_try(space, fresh, y, voters, classes) for space in spaces]


def best(tried: Sequence[Tried]) -> Tried:
    """The space whose neighbours foretell best; of equally good ones the first."""
    return max(tried, key=lambda one: -np.inf if one.agreement is None else one.agreement)


def _try(space: Space, fresh: Tensor, y: Tensor, voters: Electorate, classes: bool) -> Tried:
    if not len(fresh):
        return Tried(space, None, None)
    around = look_around(space, space.test, fresh, voters)
    if classes:
        return Tried(space, around, 1 - judge(around.votes, y).outvoted)
    error = (around.votes / around.voters[:, None] - y).square().sum(1).mean()
    return Tried(space, around, -float(error))


def leave_one_out(space: Space, y: Tensor, voters: Electorate, place: Tensor) -> Votes:
    """Votes of the others on every train label; y [n], place [n] of each sample among the voters."""
    everyone = torch.arange(len(voters.rows), device=y.device)
    around = look_around(space, space.train, voters.rows, voters, everyone, near=False)
    votes = around.votes[place]
    votes[torch.arange(len(y), device=y.device), y] -= 1  # its own ballot
    return judge(votes, y)


def wrong_rate(
    train: tuple[float, int], test: tuple[float, int], classes: int, draws: int, seed: int
) -> tuple[float | None, tuple[float, float] | None]:
    """The rate r with its 95 % interval, from X and Y and the number of samples behind each.

    None where the vote foretells nothing, so that the equation has no solution. X and Y are drawn from their posterior
    under Jeffreys' prior: unlike a bootstrap it also knows that 0 of 40 is not 0.
    """
    rng = np.random.default_rng(seed)
    X, Y = (rng.beta(n * share + 0.5, n * (1 - share) + 0.5, draws) for share, n in (train, test))
    value = float(_solve(np.array([train[0]]), np.array([test[0]]), classes)[0])
    return (value, interval(_solve(X, Y, classes))) if np.isfinite(value) else (None, None)


def _solve(X: Array, Y: Array, C: int) -> Array:
    """The r = (X − Y) / (1 − Y C/(C−1)) within 0 and 1; NaN where the vote is no better than guessing."""
    room = 1 - Y * C / (C - 1)
    return np.where(room > 0, np.clip((X - Y) / np.where(room > 0, room, 1.0), 0.0, 1.0), np.nan)
