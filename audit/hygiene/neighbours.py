"""The nearest train samples of a sample, and what they say about its label: exact, in blocks, one matrix product each.

The neighbours of a sample are its 10 nearest train samples and all others that are no farther than the tenth, so that
equal distances are never broken by chance or order. Equal inputs are searched once, with their number as weight.

Single precision finds the candidates, with a margin that covers its rounding error; what lies inside the margin is
decided in double precision. Where the margin holds too many, all distances are taken in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from audit.partners import ROUNDING, ROUNDING_SINGLE, row_blocks

NEIGHBOURS = 10  # k
CROWDED = 4  # times the neighbours asked for: more candidates than that, and single precision is of no use
LARGEST = 1e37  # squared norm that single precision can add to another
PRECISE = 1e8  # times its rounding error: a squared distance as large as this keeps eight digits
CACHED = 1 << 16  # numbers in a block of differences: 512 KB, which a processor's cache holds
KEPT = 1 << 24  # numbers (64 MB) up to which the train samples are kept ready in single precision


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
            parts = row_blocks(train.shape[1], len(train))
            deviation = torch.cat([train[:, part].double().std(0, correction=0) for part in parts])
            constant = deviation <= ROUNDING * mean.abs()
            scale = torch.where(constant, scale, 1 / deviation.where(~constant, scale))
        return cls(name, train, test, mean, scale)

    @cached_property
    def varying(self) -> Tensor:
        """Features that differ between train samples: no other one can tell which of them is near."""
        return torch.nonzero((self.train != self.train[:1]).any(0))[:, 0]


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


def look_around(
    space: Space, x: Tensor, rows: Tensor, voters: Electorate, own: Tensor | None = None, near: bool = True
) -> Neighbourhood:
    """The neighbours of `rows` [q] of x; `own` [q]: their own places among the voters, whose weight is one less there.

    The votes still hold the point's own ballot then: whoever asks takes it out. Without `near`, the votes alone.
    """
    search = _Search(space, voters, near)
    found = _unfilled(len(rows), voters, int(own is not None), near)
    for part in row_blocks(len(rows), max(len(voters.rows), x.shape[1])):
        pieces = search.look(x[rows[part]], None if own is None else own[part])
        for whole, piece in zip((found.votes, found.voters, found.nearest, found.distance), pieces, strict=True):
            whole[part] = piece
    return found


def _unfilled(q: int, voters: Electorate, itself: int, near: bool) -> Neighbourhood:
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
    """The voters as points, made ready once."""

    def __init__(self, space: Space, voters: Electorate, near: bool) -> None:
        self.space, self.voters, self.near = space, voters, near
        u, V = len(voters.rows), len(space.varying)
        self._parts = list(row_blocks(V, u))  # of the features that vary
        self._norms = torch.zeros(u, dtype=torch.float64, device=voters.rows.device)
        self._single = self._norms.new_empty(u, V, dtype=torch.float32) if u * V <= KEPT else None
        for part in self._parts:
            scaled = self._base(part)
            self._norms += scaled.square().sum(1)
            if self._single is not None:
                self._single[:, part] = scaled

    def _base(self, part: slice) -> Tensor:
        """Some features of the voters, shifted and scaled."""
        features, train, rows = self.space.varying[part], self.space.train, self.voters.rows
        x = train[:, features] if len(rows) == len(train) else train[rows[:, None], features]  # no more than is wanted
        return _scaled(self.space, x, features)

    def look(self, points: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The parts of a `Neighbourhood`, for one block of points."""
        found = self._in_single(points, own) or self._in_double(points, own)
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
        k = min(NEIGHBOURS, len(self.voters.rows) - itself) if self.near else 0
        place = first[:, None] + torch.arange(itself, itself + k, device=row.device)
        return votes, count, self.voters.rows[column[place]], squared[place].sqrt()

    def _poll(self, row: Tensor, column: Tensor, weight: Tensor, q: int) -> tuple[Tensor, Tensor]:
        """Ballots and number of the voters that count, by point."""
        ballots = self.voters.ballots
        votes = ballots.new_zeros(q, ballots.shape[1])
        for part in row_blocks(len(row), ballots.shape[1]):
            votes.index_add_(0, row[part], ballots[column[part]])
        return votes, ballots.new_zeros(q).index_add_(0, row, weight)

    def _in_single(self, points: Tensor, own: Tensor | None) -> _Candidates | None:
        """Candidates by single precision, their distances by double; None where it cannot tell the candidates."""
        norm = self._largest_norm(points)
        if not bool(norm.max() < LARGEST):
            return None
        D = points.shape[1]
        margin = ((D + 8) * ROUNDING_SINGLE * norm).float()  # twice the rounding error of an entry
        squared = self._squared(points, own, torch.float32)
        radius, bound = self._reach(squared, own)
        row, column = torch.nonzero(squared <= (bound + margin)[:, None], as_tuple=True)
        if len(row) > CROWDED * (NEIGHBOURS + 1) * len(points):
            return None
        asked = squared[row, column]
        asked = (asked > -torch.inf) if self.near else (asked >= (radius - margin)[row])
        if not self.near:
            asked &= torch.bincount(row[asked], minlength=len(points))[row] > 1  # alone, it is the tenth itself
        exact = norm.new_full((len(row),), -torch.inf)
        exact[asked] = self._differences(points, row[asked], column[asked])
        return _Candidates(row, column, exact, 4 * (D + 4) * ROUNDING * norm)

    def _in_double(self, points: Tensor, own: Tensor | None) -> _Candidates:
        """Candidates and distances by double precision; anew from differences where the product lost digits."""
        norm = self._largest_norm(points)
        slack = 4 * (points.shape[1] + 4) * ROUNDING * norm
        squared = self._squared(points, own, torch.float64)
        bound = self._reach(squared, own)[1] + slack
        row, column = torch.nonzero(squared <= bound[:, None], as_tuple=True)
        found = squared[row, column] + (norm - self._norms.max())[row]
        lost = (found < PRECISE * slack[row]) & (found > -torch.inf) & self.near
        found[lost] = self._differences(points, row[lost], column[lost])
        return _Candidates(row, column, found, slack)

    def _reach(self, squared: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
        """The distance within which there are enough voters, and the one up to which candidates are wanted [q]."""
        itself = int(own is not None)
        k = min(NEIGHBOURS + itself, len(self.voters.rows))
        values, index = squared.topk(k, dim=1, largest=False)
        reached = self.voters.weight[index].cumsum(1) - itself >= NEIGHBOURS
        last = torch.where(reached.any(1), reached.int().argmax(1), k - 1)
        radius = values.gather(1, last[:, None])[:, 0]
        return radius, values[:, -1] if self.near else radius

    def _largest_norm(self, points: Tensor) -> Tensor:
        """‖a‖² + max ‖b‖² [q]."""
        return _scaled(self.space, points, slice(None)).square().sum(1) + self._norms.max()

    def _squared(self, points: Tensor, own: Tensor | None, dtype: torch.dtype) -> Tensor:
        """‖b‖² − 2 a·b [q, u] as a matrix product; −∞ for the point itself: the first, however close others are."""
        squared = self._norms.to(dtype).repeat(len(points), 1)
        for part in self._parts:
            features = self.space.varying[part]
            kept = self._single if dtype == torch.float32 else None
            base = self._base(part).to(dtype) if kept is None else kept[:, part]
            squared.addmm_(_scaled(self.space, points[:, features], features).to(dtype), base.T, alpha=-2)
        return squared if own is None else squared.scatter_(1, own[:, None], -torch.inf)

    def _differences(self, points: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """‖a − b‖² of pairs [p], from differences."""
        found = self._norms.new_empty(len(row))
        for start in range(0, len(row), step := max(1, CACHED // points.shape[1])):
            part = slice(start, start + step)
            difference = points[row[part]].double() - self.space.train[self.voters.rows[column[part]]].double()
            found[part] = difference.mul_(self.space.scale).square_().sum(1)
        return found


def _scaled(space: Space, x: Tensor, columns: slice | Tensor) -> Tensor:
    """Features x [q, some] shifted and scaled."""
    return (x.double() - space.shift[columns]).mul_(space.scale[columns])
