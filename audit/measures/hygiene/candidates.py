"""Which train samples may be among the nearest of a point, by single precision alone.

A margin covers its rounding error, so that no neighbour is missed; who is one is decided elsewhere, by double.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.blocks import PAIRS_PROPOSED
from audit.measures.hygiene.points import Ready, Screen, how_many, positions, smallest

NEIGHBOURS = 10  # k
FIRST = 18  # voters that are measured to learn how far the neighbours can be: more than there are neighbours
DENSE = 8  # products of pairs within a matrix product take the time of one product of a pair by itself

Table = tuple[Tensor, Tensor]  # ‖b‖² − 2 a·b and the voters of each point [q, m]


@dataclass(frozen=True)
class Points:
    """Points whose neighbours are wanted, in single precision."""

    a: Tensor  # [q, V]
    margin: Tensor  # [q] twice the rounding error of ‖b‖² − 2 a·b
    itself: int  # 1 where each point is one of the voters, else 0
    near: bool  # whether all voters no farther than the k-th are wanted, or only as many as are enough

    def part(self, rows: Tensor) -> Points:
        """Some of them."""
        return Points(self.a[rows], self.margin[rows], self.itself, self.near)

    def most(self, squared: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """What the last voter has when there are enough, and no less than what the farthest wanted one can have [q].

        From any voters of each point [q, m] and their weight.
        """
        radius, bound = radii(squared, weight, self.itself)
        return radius, (bound if self.near else radius) + self.margin


@dataclass(frozen=True)
class VoterPairs:
    """Pairs of a point and a voter, point by point."""

    row: Tensor  # [p] which point
    column: Tensor  # [p] which voter
    squared: Tensor  # [p] ‖b‖² − 2 a·b

    def at(self, places: Tensor) -> VoterPairs:
        """Some of the pairs."""
        return VoterPairs(self.row[places], self.column[places], self.squared[places])

    def beside(self, other: VoterPairs) -> VoterPairs:
        """Both, point by point."""
        row = torch.cat([self.row, other.row])
        both = VoterPairs(row, torch.cat([self.column, other.column]), torch.cat([self.squared, other.squared]))
        return both.at(row.argsort(stable=True))

    def table(self, q: int) -> Table:
        """The squared distances and the voters of each point, filled up with ∞ and 0  [q, most of a point]."""
        many = torch.bincount(self.row, minlength=q)
        place = torch.arange(len(self.row), device=self.row.device) - (many.cumsum(0) - many)[self.row]
        shape = q, int(many.max())
        squared = self.squared.new_full(shape, torch.inf).index_put_((self.row, place), self.squared)
        return squared, self.column.new_zeros(shape).index_put_((self.row, place), self.column)


class Proposer:
    """Some of the voters, in single precision."""

    def __init__(self, ready: Ready, weight: Tensor, points: int) -> None:
        """Voters b with their weight [u], for so many `points`."""
        self._ready, self._weight, self._points = ready, weight, points

    def propose(self, points: Points) -> VoterPairs | None:
        """All of these voters that may be wanted; None where it cannot tell."""
        screen = self._ready.screen(self._points)
        table = self._by_all(points) if screen is None else self._by_screen(points, screen)
        return None if table is None else wanted(table, self._weight, points)[0]

    def _by_all(self, points: Points) -> Table | None:
        """At least the voters that are wanted, by the products of all pairs."""
        squared = self._ready.products(points.a)
        first = smallest(squared, FIRST)
        nearest = squared.gather(1, first)
        others = _within(squared.scatter_(1, first, torch.inf), points.most(nearest, self._weight[first])[1])
        return None if others is None else _beside((nearest, first), others.table(len(first)))

    def _by_screen(self, points: Points, screen: Screen) -> Table | None:
        """The same by the products of those pairs alone that may be near by their bounds."""
        seen = screen.see(points.a)
        bounds = screen.bounds(seen)
        places = screen.closest(bounds, FIRST)
        first = screen.order[places]
        row = torch.arange(len(first), device=first.device).repeat_interleave(first.shape[1])
        nearest = self._ready.products_of(points.a, row, first.flatten()).view_as(first)
        most = points.most(nearest, self._weight[first])[1]
        norm = points.a.square().sum(1).double()
        limit = screen.limit(seen, norm, most + norm + 2 * points.margin, points.a.shape[1])
        possible = bounds.scatter_(1, places, torch.inf) <= limit[:, None]
        if how_many(possible) * DENSE > possible.numel():
            screen.note(possible.numel(), possible.numel())
            return self._by_all(points)
        others = self._measured(points, possible, screen, most, first)
        return None if others is None else _beside((nearest, first), others.table(len(first)))

    def _measured(
        self, points: Points, possible: Tensor, screen: Screen, most: Tensor, known: Tensor
    ) -> VoterPairs | None:
        """The pairs within `most` [q] that are `possible` [q, u, in the screen's order] and not `known` [q, m]."""
        row, place = positions(possible)
        crowded = self._crowded(row, len(possible), screen)
        if len(crowded):
            possible[crowded] = False
            row, place = positions(possible)
        column = screen.order[place]
        squared = self._ready.products_of(points.a, row, column)
        few = VoterPairs(row, column, squared).at(positions((squared <= most[row])[None])[1])
        if not len(crowded):
            return few
        products = self._ready.products(points.a[crowded])
        many = _within(products.scatter_(1, known[crowded], torch.inf), most[crowded])
        if many is None:
            return None
        return few.beside(VoterPairs(crowded[many.row], many.column, many.squared))

    def _crowded(self, row: Tensor, q: int, screen: Screen) -> Tensor:
        """Points with so many pairs that the products of all voters take less time."""
        u = len(self._weight)
        work = (DENSE * torch.bincount(row, minlength=q)).clamp(max=u)
        screen.note(float(work.sum()), q * u)
        return torch.nonzero(work == u)[:, 0]


def wanted(table: Table, weight: Tensor, points: Points) -> tuple[VoterPairs, Tensor]:
    """The voters that may be wanted of those in a table, in order, and the ‖b‖² − 2 a·b within which are enough [q]."""
    squared, column = table
    radius, most = points.most(squared, weight[column])
    row, place = positions(squared <= most[:, None])
    found = VoterPairs(row, column[row, place], squared[row, place])
    return found.at((found.row * len(weight) + found.column).argsort()), radius


def radii(squared: Tensor, weight: Tensor, itself: int) -> tuple[Tensor, Tensor]:
    """What the last voter has when there are enough, and what the k-th has [q]; of voters [q, m] and their weight.

    With `itself`, one of the samples behind the voters is the point, which is no neighbour of its own.
    """
    k = min(NEIGHBOURS + itself, squared.shape[1])
    values, index = squared.topk(k, dim=1, largest=False)
    reached = weight.gather(1, index).cumsum(1) - itself >= NEIGHBOURS
    last = torch.where(reached.any(1), reached.int().argmax(1), k - 1)
    return values.gather(1, last[:, None])[:, 0], values[:, -1]


def _within(squared: Tensor, most: Tensor) -> VoterPairs | None:
    """The pairs up to `most` [q] among all [q, u]; None where they are too many to be candidates."""
    close = squared <= most[:, None]
    if how_many(close) > PAIRS_PROPOSED:
        return None
    row, column = positions(close)
    return VoterPairs(row, column, squared[row, column])


def _beside(*tables: Table) -> Table:
    squared, column = (torch.cat(parts, 1) for parts in zip(*tables, strict=True))
    return squared, column
