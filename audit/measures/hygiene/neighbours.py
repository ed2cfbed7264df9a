"""The nearest train samples of a sample, and what they say about its label: exact, in blocks.

The neighbours of a sample are its 10 nearest train samples and all others that are no farther than the tenth, so that
equal distances are never broken by chance or order. Equal inputs are searched once, with their number as weight.

Single precision finds the candidates, with a margin that covers its rounding error; what lies inside the margin is
decided in double precision. Where the margin holds too many, all distances are taken in double precision. Of many
voters, one part after the other is made ready, and goes round all points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.blocks import CACHED, HELD, POINTS, SHARED_POINTS, blocks
from audit.measures.hygiene.candidates import NEIGHBOURS, Points, Proposer, VoterPairs, radii, wanted
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


@dataclass(frozen=True)
class _Asked:
    """Points whose neighbours are wanted."""

    x: Tensor  # [m, D] samples …
    rows: Tensor  # [q] … and which of them
    own: Tensor | None  # [q] their places among the voters
    norm: Tensor  # [q] ‖a‖² + max ‖b‖²
    near: bool  # whether the nearest are wanted, or the votes alone

    @property
    def itself(self) -> int:
        """1 where the points are among the voters."""
        return int(self.own is not None)

    def part(self, part: slice) -> _Asked:
        """Some of them."""
        own = None if self.own is None else self.own[part]
        return _Asked(self.x, self.rows[part], own, self.norm[part], self.near)

    def blocks(self, voters: int) -> Iterator[_Asked]:
        """All of them, so many at once that their distances from so many voters can be held."""
        return map(self.part, blocks(len(self.rows), max(voters, self.x.shape[1]), HELD))


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


class Search:
    """The voters as points of a space, to look for neighbours among as often as needed.

    What every search needs of them is made ready once where it is little, and for each search where it is not.
    """

    def __init__(self, space: Space, voters: Voters) -> None:
        self.space, self.voters = space, voters
        little = len(voters.rows) * space.train.shape[1] <= SHARED_POINTS
        self._shared = Ready(space, voters.rows) if little else None
        self._norms = self._shared.norms if self._shared else self._squared(space.train, voters.rows)  # [u] ‖b‖²

    def around(self, x: Tensor, rows: Tensor, own: Tensor | None = None, near: bool = True) -> Neighbourhood:
        """The neighbours of `rows` [q] of x; `own` [q]: their places among the voters, whose weight is one less there.

        The votes still hold the point's own ballot then: whoever asks takes it out. Without `near`, the votes alone.
        """
        asked = _Asked(x, rows, own, self._squared(x, rows) + self._norms.max(), near)
        found = _unfilled(asked, self.voters)
        start = 0
        for block, proposed in self._proposed(asked):
            for some in [block] if proposed is not None else block.blocks(len(self.voters.rows)):
                place, start = slice(start, start + len(some.rows)), start + len(some.rows)
                pieces = self._look(some, proposed)
                for whole, piece in zip(
                    (found.votes, found.voters, found.nearest, found.distance), pieces, strict=True
                ):
                    whole[place] = piece
        return found

    def _squared(self, x: Tensor, rows: Tensor) -> Tensor:
        """‖a‖² of the samples at `rows` [q] of x."""
        norms = self.space.shift.new_empty(len(rows))
        self.space.place(x, rows, None, norms)
        return norms

    def _proposed(self, asked: _Asked) -> list[tuple[_Asked, VoterPairs | None]]:
        """The points in blocks, each with its candidates; None where single precision cannot tell them."""
        rows, weight = self.voters.rows, self.voters.weight
        parts = list(blocks(len(rows), len(self.space.varying), POINTS))
        asked_blocks = list(asked.blocks(parts[0].stop))
        found: list[VoterPairs | None] = [None] * len(asked_blocks)
        for part in parts:
            ready = self._shared if self._shared and len(parts) == 1 else Ready(self.space, rows[part])
            proposer = Proposer(ready, weight[part], len(asked.rows))
            for place, block in enumerate(asked_blocks):
                if part.start == 0 or found[place] is not None:
                    found[place] = self._joined(block, found[place], proposer, part.start)
        return list(zip(asked_blocks, found, strict=True))

    def _joined(self, asked: _Asked, before: VoterPairs | None, proposer: Proposer, start: int) -> VoterPairs | None:
        """The candidates of the parts `before` and of the one that begins at `start`."""
        if not bool((asked.norm.max() < LARGEST) & (self._norms.max() > SMALLEST)):
            return None
        points = self._points(asked)
        found = proposer.propose(points)
        if found is not None and before is not None:
            both = before.beside(VoterPairs(found.row, found.column + start, found.squared))
            found = wanted(both.table(len(points.a)), self.voters.weight, points)[0]
        many = CROWDED * (NEIGHBOURS + 1) * len(points.a)
        return None if found is None or len(found.row) > many else found

    def _points(self, asked: _Asked) -> Points:
        a = asked.norm.new_empty(len(asked.rows), len(self.space.varying), dtype=torch.float32)
        self.space.place(asked.x, asked.rows, a, torch.empty_like(asked.norm))
        return Points(a, self._margin(asked), asked.itself, asked.near)

    def _margin(self, asked: _Asked) -> Tensor:
        """Twice the rounding error of an entry in single precision [q]."""
        return ((asked.x.shape[1] + 8) * ROUNDING_SINGLE * asked.norm).float()

    def _look(self, asked: _Asked, proposed: VoterPairs | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The parts of a `Neighbourhood`, for one block of points."""
        found = self._in_double(asked) if proposed is None else self._in_single(asked, proposed)
        found, q, own = found.in_order(), len(asked.rows), asked.own
        row, column, squared = found.row, found.column, found.squared
        weight = self.voters.weight[column]
        if own is not None:
            weight = weight - (own[row] == column).to(weight.dtype)
        many = torch.bincount(row, minlength=q)
        first = many.cumsum(0) - many
        total = weight.cumsum(0)
        enough = torch.nonzero(total - (total - weight)[first][row] >= NEIGHBOURS)[:, 0]
        last = (first + many - 1).scatter_reduce(0, row[enough], enough, "amin")
        counted = squared <= (squared[last] + found.slack)[row]
        votes, count = self._poll(row[counted], column[counted], weight[counted], q)
        place = first[:, None] + torch.arange(_named(asked, self.voters), device=row.device) + asked.itself
        return votes, count, self.voters.rows[column[place]], squared[place].sqrt()

    def _poll(self, row: Tensor, column: Tensor, weight: Tensor, q: int) -> tuple[Tensor, Tensor]:
        """Ballots and number of the voters that count, by point."""
        ballots = self.voters.ballots
        votes = ballots.new_zeros(q, ballots.shape[1])
        for part in blocks(len(row), ballots.shape[1], HELD):
            votes.index_add_(0, row[part], ballots[column[part]])
        return votes, ballots.new_zeros(q).index_add_(0, row, weight)

    def _in_single(self, asked: _Asked, proposed: VoterPairs) -> _Candidates:
        """The candidates of single precision, their distances by double."""
        q, squared, margin = len(asked.rows), proposed.squared, self._margin(asked)
        if asked.own is not None:
            squared = squared.masked_fill(asked.own[proposed.row] == proposed.column, -torch.inf)
        table = VoterPairs(proposed.row, proposed.column, squared).table(q)
        points = Points(margin.new_empty(q, 0), margin, asked.itself, asked.near)
        found, radius = wanted(table, self.voters.weight, points)
        row, column = found.row, found.column
        unsure = (found.squared > -torch.inf) if asked.near else (found.squared >= (radius - margin)[row])
        if not asked.near:
            unsure &= torch.bincount(row[unsure], minlength=q)[row] > 1  # alone, it is the tenth itself
        exact = asked.norm.new_full((len(row),), -torch.inf)
        exact[unsure] = self._differences(asked, row[unsure], column[unsure])
        return _Candidates(row, column, exact, self._slack(asked))

    def _in_double(self, asked: _Asked) -> _Candidates:
        """Candidates and distances by double precision; anew from differences where the product lost digits."""
        slack, own = self._slack(asked), asked.own
        squared = self._products(self.space.scaled(asked.x[asked.rows]).index_select(1, self.space.varying))
        if own is not None:
            squared.scatter_(1, own[:, None], -torch.inf)
        radius, bound = radii(squared, self.voters.weight.expand_as(squared), asked.itself)
        row, column = torch.nonzero(squared <= ((bound if asked.near else radius) + slack)[:, None], as_tuple=True)
        found = squared[row, column] + (asked.norm - self._norms.max())[row]
        lost = (found < PRECISE * slack[row]) & (found > -torch.inf) & asked.near
        found[lost] = self._differences(asked, row[lost], column[lost])
        return _Candidates(row, column, found, slack)

    def _slack(self, asked: _Asked) -> Tensor:
        return 4 * (asked.x.shape[1] + 4) * ROUNDING * asked.norm

    def _products(self, a: Tensor) -> Tensor:
        """‖b‖² − 2 a·b [q, u] of points a [q, V]."""
        squared = self._norms.repeat(len(a), 1)
        for part in blocks(a.shape[1], len(self._norms), HELD):  # of the features
            squared.addmm_(a[:, part], self._some_features(part).T, alpha=-2)
        return squared

    def _some_features(self, part: slice) -> Tensor:
        """Some features of the voters, shifted and scaled [u, some]."""
        features, train, rows = self.space.varying[part], self.space.train, self.voters.rows
        x = train[:, features] if len(rows) == len(train) else train[rows[:, None], features]  # no more than is wanted
        return (x.double() - self.space.shift[features]).mul_(self.space.scale[features])

    def _differences(self, asked: _Asked, row: Tensor, column: Tensor) -> Tensor:
        """‖a − b‖² of pairs [p], from differences."""
        found = self._norms.new_empty(len(row))
        for part in blocks(len(row), asked.x.shape[1], CACHED):
            a = asked.x.index_select(0, asked.rows[row[part]])
            b = self.space.train.index_select(0, self.voters.rows[column[part]])
            found[part] = a.double().sub_(b.double()).mul_(self.space.scale).square_().sum(1)
        return found


def _named(asked: _Asked, voters: Voters) -> int:
    """How many of the nearest are named."""
    return min(NEIGHBOURS, len(voters.rows) - asked.itself) if asked.near else 0


def _unfilled(asked: _Asked, voters: Voters) -> Neighbourhood:
    """Room for the answers, taken before the blocks: small answers kept between large blocks would split the heap."""
    q, k, empty = len(asked.rows), _named(asked, voters), voters.ballots.new_empty
    return Neighbourhood(empty(q, voters.ballots.shape[1]), empty(q), empty(q, k, dtype=voters.rows.dtype), empty(q, k))
