"""The nearest train samples of a sample, and what they say about its label: exact, in blocks.

The neighbours of a sample are its 10 nearest train samples and all others that are no farther than the tenth, so that
equal distances are never broken by chance or order. Equal inputs are searched once, with their number as weight.

Single precision finds the candidates, with a margin that covers its rounding error; what lies inside the margin is
decided in double precision. Where the margin holds too many, all distances are taken in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.blocks import CACHED, HELD, SHARED_POINTS, blocks
from audit.measures.hygiene.candidates import NEIGHBOURS, Points, Proposer, radii
from audit.measures.hygiene.points import ROUNDING, ROUNDING_SINGLE, Ready, Space

CROWDED = 4  # times the neighbours asked for: more candidates than that, and single precision is of no use
LARGEST = 1e37  # squared norm that single precision can add to another
SMALLEST = 1e-28  # largest squared norm whose rounding error single precision can still tell from zero
PRECISE = 1e8  # times its rounding error: a squared distance as large as this keeps eight digits


@dataclass(frozen=True)
class Voters:
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


def gather_votes(x_id: Tensor, ballots: Tensor) -> tuple[Voters, Tensor]:
    """Train samples with equal inputs put together; also each sample's place among the different inputs [n]."""
    place = torch.unique(x_id, return_inverse=True)[1]
    n, u = len(place), int(place.max()) + 1
    weight = ballots.new_zeros(u).index_add_(0, place, ballots.new_ones(n))
    joined = ballots.new_zeros(u, ballots.shape[1]).index_add_(0, place, ballots)
    first = place.new_full((u,), n).scatter_reduce(0, place, torch.arange(n, device=place.device), "amin")
    return Voters(first, weight, joined), place


class Search:
    """The voters as points of a space, to look for neighbours among as often as needed.

    What every search needs of them is made ready once where it is little, and for each search where it is not.
    """

    def __init__(self, space: Space, voters: Voters) -> None:
        self.space, self.voters = space, voters
        little = len(voters.rows) * space.train.shape[1] <= SHARED_POINTS
        self._ready = Ready(space, voters.rows) if little else None

    def around(self, x: Tensor, rows: Tensor, own: Tensor | None = None, near: bool = True) -> Neighbourhood:
        """The neighbours of `rows` [q] of x; `own` [q]: their places among the voters, whose weight is one less there.

        The votes still hold the point's own ballot then: whoever asks takes it out. Without `near`, the votes alone.
        """
        search = _Search(self.space, self.voters, self._ready or Ready(self.space, self.voters.rows), len(rows))
        found = _unfilled(len(rows), self.voters, int(own is not None), near)
        for part in blocks(len(rows), max(len(self.voters.rows), x.shape[1]), HELD):
            pieces = search.look(x[rows[part]], None if own is None else own[part], near)
            for whole, piece in zip((found.votes, found.voters, found.nearest, found.distance), pieces, strict=True):
                whole[part] = piece
        return found


def _unfilled(q: int, voters: Voters, itself: int, near: bool) -> Neighbourhood:
    """Room for the answers, taken before the blocks: small answers kept between large blocks would split the heap."""
    k = min(NEIGHBOURS, len(voters.rows) - itself) if near else 0
    empty = voters.ballots.new_empty
    return Neighbourhood(empty(q, voters.ballots.shape[1]), empty(q), empty(q, k, dtype=voters.rows.dtype), empty(q, k))


@dataclass(frozen=True)
class _Candidates:
    """Pairs of a point and a voter that may be its neighbour."""

    row: Tensor  # [p] which point
    column: Tensor  # [p] which voter
    squared: Tensor  # [p] ‖a − b‖²; −∞ where the pair is one for sure
    slack: Tensor  # [q] squared distances of a point that differ by less count as equal

    def in_order(self) -> _Candidates:
        """By point, the nearest first, of equally near ones the first."""
        order = torch.argsort(self.squared, stable=True)
        order = order[torch.argsort(self.row[order], stable=True)]
        return _Candidates(self.row[order], self.column[order], self.squared[order], self.slack)


class _Search:
    """One search."""

    def __init__(self, space: Space, voters: Voters, ready: Ready, points: int) -> None:
        """For so many points."""
        self.space, self.voters, self._ready = space, voters, ready
        self._norms = self._ready.norms
        self._proposer = Proposer(self._ready, voters.weight, points, self._products)

    def look(self, points: Tensor, own: Tensor | None, near: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The parts of a `Neighbourhood`, for one block of points."""
        a, norm = self._placed(points, own)
        found = self._in_single(points, a, own, norm, near) or self._in_double(points, own, norm, near)
        found, itself = found.in_order(), int(own is not None)
        row, column, squared = found.row, found.column, found.squared
        weight = self.voters.weight[column]
        if own is not None:
            weight = weight - (own[row] == column).to(weight.dtype)
        many = torch.bincount(row, minlength=len(points))
        first = many.cumsum(0) - many
        total = weight.cumsum(0)
        enough = torch.nonzero(total - (total - weight)[first][row] >= NEIGHBOURS)[:, 0]
        last = (first + many - 1).scatter_reduce(0, row[enough], enough, "amin")
        counted = squared <= (squared[last] + found.slack)[row]
        votes, count = self._poll(row[counted], column[counted], weight[counted], len(points))
        k = min(NEIGHBOURS, len(self.voters.rows) - itself) if near else 0
        place = first[:, None] + torch.arange(itself, itself + k, device=row.device)
        return votes, count, self.voters.rows[column[place]], squared[place].sqrt()

    def _poll(self, row: Tensor, column: Tensor, weight: Tensor, q: int) -> tuple[Tensor, Tensor]:
        """Ballots and number of the voters that count, by point."""
        ballots = self.voters.ballots
        votes = ballots.new_zeros(q, ballots.shape[1])
        for part in blocks(len(row), ballots.shape[1], HELD):
            votes.index_add_(0, row[part], ballots[column[part]])
        return votes, ballots.new_zeros(q).index_add_(0, row, weight)

    def _placed(self, points: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
        """The points in single precision [q, V], and ‖a‖² + max ‖b‖² [q]."""
        if own is not None and self._ready.single is not None:
            return self._ready.single[own], self._norms[own] + self._norms.max()
        norm = self._norms.new_empty(len(points))
        a = norm.new_empty(len(points), len(self.space.varying), dtype=torch.float32)
        self.space.place(points, a, norm)
        return a, norm + self._norms.max()

    def _in_single(self, points: Tensor, a: Tensor, own: Tensor | None, norm: Tensor, near: bool) -> _Candidates | None:
        """Candidates by single precision, their distances by double; None where it cannot tell the candidates."""
        if not bool((norm.max() < LARGEST) & (self._norms.max() > SMALLEST)):
            return None
        D = points.shape[1]
        margin = ((D + 8) * ROUNDING_SINGLE * norm).float()  # twice the rounding error of an entry
        proposed = self._proposer.propose(Points(a, own, margin), near)
        if proposed is None or len(proposed[0].row) > CROWDED * (NEIGHBOURS + 1) * len(points):
            return None
        found, radius = proposed
        row, column = found.row, found.column
        asked = (found.squared > -torch.inf) if near else (found.squared >= (radius - margin)[row])
        if not near:
            asked &= torch.bincount(row[asked], minlength=len(points))[row] > 1  # alone, it is the tenth itself
        exact = norm.new_full((len(row),), -torch.inf)
        exact[asked] = self._differences(points, row[asked], column[asked])
        return _Candidates(row, column, exact, 4 * (D + 4) * ROUNDING * norm)

    def _in_double(self, points: Tensor, own: Tensor | None, norm: Tensor, near: bool) -> _Candidates:
        """Candidates and distances by double precision; anew from differences where the product lost digits."""
        slack = 4 * (points.shape[1] + 4) * ROUNDING * norm
        squared = self._products(self.space.scaled(points).index_select(1, self.space.varying))
        if own is not None:
            squared.scatter_(1, own[:, None], -torch.inf)
        radius, bound = radii(squared, self.voters.weight.expand_as(squared), own)
        row, column = torch.nonzero(squared <= ((bound if near else radius) + slack)[:, None], as_tuple=True)
        found = squared[row, column] + (norm - self._norms.max())[row]
        lost = (found < PRECISE * slack[row]) & (found > -torch.inf) & near
        found[lost] = self._differences(points, row[lost], column[lost])
        return _Candidates(row, column, found, slack)

    def _products(self, a: Tensor) -> Tensor:
        """‖b‖² − 2 a·b [q, u] of points a [q, V], in their precision."""
        norms, single = self._norms.to(a.dtype), self._ready.single
        if single is not None and a.dtype == single.dtype:
            return torch.addmm(norms, a, single.T, alpha=-2)
        squared = norms.repeat(len(a), 1)
        for part in blocks(a.shape[1], len(norms), HELD):  # of the features
            squared.addmm_(a[:, part], self._some_features(part).to(a.dtype).T, alpha=-2)
        return squared

    def _some_features(self, part: slice) -> Tensor:
        """Some features of the voters, shifted and scaled [u, some]."""
        features, train, rows = self.space.varying[part], self.space.train, self.voters.rows
        x = train[:, features] if len(rows) == len(train) else train[rows[:, None], features]  # no more than is wanted
        return (x.double() - self.space.shift[features]).mul_(self.space.scale[features])

    def _differences(self, points: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """‖a − b‖² of pairs [p], from differences."""
        found = self._norms.new_empty(len(row))
        for part in blocks(len(row), points.shape[1], CACHED):
            a, b = points.index_select(0, row[part]), self.space.train.index_select(0, self.voters.rows[column[part]])
            found[part] = a.double().sub_(b.double()).mul_(self.space.scale).square_().sum(1)
        return found
