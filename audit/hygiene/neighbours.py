"""The nearest train samples of a sample, and what they say about its label: exact, in blocks, one matrix product each.

The neighbours of a sample are its 10 nearest train samples and all others that are no farther than the tenth, so that
equal distances are never broken by chance or order. Equal inputs are searched once, with their number as weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.partners import BLOCK_NUMBERS, ROUNDING

NEIGHBOURS = 10  # k
PRECISE = 1e8  # times its rounding error: a squared distance as large as this keeps eight digits


@dataclass(frozen=True)
class Space:
    """Samples as points, in the numbers they came in; shifted and scaled, by feature, when they are compared."""

    name: str  # "input", "standardised input" or "features"
    train: Tensor  # [n, D]
    test: Tensor  # [m, D]
    shift: Tensor  # [D] float64: distances do not change by it, their rounding does
    scale: Tensor  # [D] float64

    @classmethod
    def of(cls, name: str, train: Tensor, test: Tensor, standardise: bool = False) -> Space:
        """A space centred on train; a feature that never varies in train keeps its own unit."""
        train, test = train.flatten(1), test.flatten(1)
        mean = train.mean(0, dtype=torch.float64)
        scale = torch.ones_like(mean)
        if standardise:
            parts = _blocks(train.shape[1], len(train))
            deviation = torch.cat([train[:, part].double().std(0, correction=0) for part in parts])
            constant = deviation <= ROUNDING * mean.abs()
            scale = torch.where(constant, scale, 1 / deviation.where(~constant, scale))
        return cls(name, train, test, mean, scale)


@dataclass(frozen=True)
class Electorate:
    """The different train inputs, and what the samples behind each of them vote for."""

    rows: Tensor  # [u] position in train of the first sample with this input
    weight: Tensor  # [u] how many samples have it
    ballots: Tensor  # [u, C] how many of them have each label; for regression, the sum of their targets


@dataclass(frozen=True)
class Neighbourhood:
    """What was found around q points."""

    votes: Tensor  # [q, C] ballots of all neighbours
    voters: Tensor  # [q] how many neighbours
    nearest: Tensor  # [q, k] positions in train of the nearest different inputs, nearest first
    distance: Tensor  # [q, k] their distances, to eight digits or better


def gather_votes(x_id: Tensor, ballots: Tensor) -> tuple[Electorate, Tensor]:
    """Train samples with equal inputs put together; also each sample's place among the different inputs [n]."""
    place = torch.unique(x_id, return_inverse=True)[1]
    n, u = len(place), int(place.max()) + 1
    weight = ballots.new_zeros(u).index_add_(0, place, ballots.new_ones(n))
    joined = ballots.new_zeros(u, ballots.shape[1]).index_add_(0, place, ballots)
    first = place.new_full((u,), n).scatter_reduce(0, place, torch.arange(n, device=place.device), "amin")
    return Electorate(first, weight, joined), place


def some_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x by increasing index: x itself, not a copy, where that is all of them."""
    return x if len(index) == len(x) else x[index]


def look_around(space: Space, points: Tensor, voters: Electorate, own: Tensor | None = None) -> Neighbourhood:
    """The neighbours of each point [q, D]; `own` [q]: its own place among the voters, whose weight is one less there.

    The votes still hold the point's own ballot then: whoever asks takes it out.
    """
    search = _Search(space, voters)
    found = _unfilled(len(points), voters, int(own is not None))
    for part in _blocks(len(points), len(voters.rows)):
        pieces = search.look(points[part], None if own is None else own[part])
        for whole, piece in zip((found.votes, found.voters, found.nearest, found.distance), pieces, strict=True):
            whole[part] = piece
    return found


def _unfilled(q: int, voters: Electorate, itself: int) -> Neighbourhood:
    """Room for the answers, taken before the blocks: small answers kept between large blocks would split the heap."""
    k = min(NEIGHBOURS + itself, len(voters.rows)) - itself
    empty = voters.ballots.new_empty
    return Neighbourhood(empty(q, voters.ballots.shape[1]), empty(q), empty(q, k, dtype=voters.rows.dtype), empty(q, k))


class _Search:
    """The voters as points, made ready once."""

    def __init__(self, space: Space, voters: Electorate) -> None:
        self.space, self.voters = space, voters
        self.base = some_rows(space.train, voters.rows)
        self.columns = list(_blocks(self.base.shape[1], len(self.base)))
        self._whole = _scaled(space, self.base, self.columns[0]) if len(self.columns) == 1 else None

    def look(self, points: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The parts of a `Neighbourhood`, for one block of points."""
        voters, itself = self.voters, int(own is not None)
        squared, error = self._squared(points)
        if own is not None:
            squared.scatter_(1, own[:, None], -torch.inf)  # always the first, however close others are
        k = min(NEIGHBOURS + itself, len(voters.rows))
        values, index = squared.topk(k, dim=1, largest=False)
        reached = voters.weight[index].cumsum(1) - itself >= NEIGHBOURS
        last = torch.where(reached.any(1), reached.int().argmax(1), k - 1)
        radius = values.gather(1, last[:, None])
        counted = (squared <= radius + error[:, None]).to(torch.float64)
        index = index[:, itself:]
        distance, order = self._distances(points, index, values[:, itself:], error).sort(dim=1, stable=True)
        nearest = voters.rows[index.gather(1, order)]
        return counted @ voters.ballots, counted @ voters.weight - itself, nearest, distance

    def _squared(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """‖a − b‖² [q, u] as a matrix product, and twice the largest rounding error of each row [q]."""
        a, b = (part.new_zeros(len(part), dtype=torch.float64) for part in (points, self.base))
        squared = a.new_empty(len(a), len(b))
        for columns in self.columns:
            p = _scaled(self.space, points, columns)
            q = self._whole if self._whole is not None else _scaled(self.space, self.base, columns)
            a += p.square().sum(1)
            b += q.square().sum(1)
            squared.addmm_(p, q.T, beta=min(1, columns.start), alpha=-2)
        squared += a[:, None]
        squared += b[None, :]
        return squared, 4 * (points.shape[1] + 4) * ROUNDING * (a + b.max())

    def _distances(self, points: Tensor, index: Tensor, squared: Tensor, error: Tensor) -> Tensor:
        """‖a_i − b_index[i,j]‖ [q, k]: where the product lost digits that matter, anew from differences."""
        rows, columns = torch.nonzero(squared < PRECISE * error[:, None], as_tuple=True)
        for part in _blocks(len(rows), points.shape[1]):
            row, column = rows[part], columns[part]
            difference = (points[row].double() - self.base[index[row, column]].double()) * self.space.scale
            squared[row, column] = difference.square().sum(1)
        return squared.sqrt()


def _scaled(space: Space, x: Tensor, columns: slice) -> Tensor:
    return (x[:, columns].double() - space.shift[columns]) * space.scale[columns]


def _width(rows: int) -> int:
    return max(1, BLOCK_NUMBERS // max(1, rows))


def _blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` rows of `width` numbers that fit into one block."""
    return (slice(start, start + _width(width)) for start in range(0, count, _width(width)))
