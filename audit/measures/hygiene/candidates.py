"""Which train samples may be among the nearest of a point, by single precision alone.

A margin covers its rounding error, so that no neighbour is missed; who is one is decided elsewhere, by double.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.blocks import PAIRS_PROPOSED
from audit.measures.hygiene.points import Ready, Screen, how_many, positions, sampled_products, smallest

NEIGHBOURS = 10  # k
FIRST = 18  # voters that are measured to learn how far the neighbours can be: more than there are neighbours
DENSE = 8  # products of pairs within a matrix product take the time of one product of a pair by itself

Table = tuple[Tensor, Tensor]  # ‖b‖² − 2 a·b and the voters of each point [q, m]


@dataclass(frozen=True)
class Points:
    """Points whose neighbours are wanted, in single precision."""

    a: Tensor  # [q, V]
    own: Tensor | None  # [q] their own places among the voters
    margin: Tensor  # [q] twice the rounding error of ‖b‖² − 2 a·b

    def part(self, rows: Tensor) -> Points:
        """Some of them."""
        return Points(self.a[rows], None if self.own is None else self.own[rows], self.margin[rows])


@dataclass(frozen=True)
class Pairs:
    """Pairs of a point and a voter, point by point."""

    row: Tensor  # [p] which point
    column: Tensor  # [p] which voter
    squared: Tensor  # [p] ‖b‖² − 2 a·b; −∞ for the point itself

    def at(self, places: Tensor) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.row[places], self.column[places], self.squared[places])

    def table(self, q: int) -> Table:
        """The squared distances and the voters of each point, filled up with ∞ and 0  [q, most of a point]."""
        many = torch.bincount(self.row, minlength=q)
        place = torch.arange(len(self.row), device=self.row.device) - (many.cumsum(0) - many)[self.row]
        shape = q, int(many.max())
        squared = self.squared.new_full(shape, torch.inf).index_put_((self.row, place), self.squared)
        return squared, self.column.new_zeros(shape).index_put_((self.row, place), self.column)


class Proposer:
    """The voters, in single precision."""

    def __init__(self, ready: Ready, weight: Tensor, points: int, product: Callable[[Tensor], Tensor]) -> None:
        """Voters b with their weight [u], for so many `points`; `product` gives ‖b‖² − 2 a·b [q, u] of a [q, V]."""
        self._ready, self._weight, self._points, self._product = ready, weight, points, product
        self._norms = ready.norms.float()

    def propose(self, points: Points, near: bool) -> tuple[Pairs, Tensor] | None:
        """All voters that are no farther than the k-th neighbour, or, unless `near`, no farther than enough voters are.

        Also the squared distance within which there are enough voters, less ‖a‖² [q]. None where it cannot tell.
        """
        screen = self._ready.screen(self._points)
        table = self._by_all(points, near) if screen is None else self._by_screen(points, near, screen)
        if table is None:
            return None
        squared, column = table
        radius, bound = radii(squared, self._weight[column], points.own)
        row, place = positions(squared <= ((bound if near else radius) + points.margin)[:, None])
        found = Pairs(row, column[row, place], squared[row, place])
        return found.at((found.row * len(self._weight) + found.column).argsort()), radius

    def _by_all(self, points: Points, near: bool) -> Table | None:
        """At least the voters that are wanted, by the products of all pairs."""
        squared = self._products(points)
        first = smallest(squared, FIRST)
        nearest = squared.gather(1, first)
        others = _within(squared.scatter_(1, first, torch.inf), self._most(nearest, first, points, near))
        return None if others is None else _beside((nearest, first), others.table(len(first)))

    def _by_screen(self, points: Points, near: bool, screen: Screen) -> Table | None:
        """The same by the products of those pairs alone that may be near by their bounds."""
        seen = screen.see(points.a, points.own)
        bounds = screen.bounds(seen)
        if points.own is not None:
            bounds.scatter_(1, screen.place[points.own][:, None], -torch.inf)
        places = screen.closest(bounds, FIRST)
        first = screen.order[places]
        row = torch.arange(len(first), device=first.device).repeat_interleave(first.shape[1])
        nearest = self._squared(points, row, first.flatten()).view_as(first)
        most = self._most(nearest, first, points, near)
        norm = points.a.square().sum(1).double()
        limit = screen.limit(seen, norm, most + norm + 2 * points.margin, points.a.shape[1])
        possible = bounds.scatter_(1, places, torch.inf) <= limit[:, None]
        if how_many(possible) * DENSE > possible.numel():
            screen.note(possible.numel(), possible.numel())
            return self._by_all(points, near)
        others = self._measured(points, possible, screen, most, first)
        return None if others is None else _beside((nearest, first), others.table(len(first)))

    def _most(self, squared: Tensor, column: Tensor, points: Points, near: bool) -> Tensor:
        """No less than what the farthest wanted voter can have [q], from any voters of each point [q, m]."""
        radius, bound = radii(squared, self._weight[column], points.own)
        return (bound if near else radius) + points.margin

    def _measured(self, points: Points, possible: Tensor, screen: Screen, most: Tensor, known: Tensor) -> Pairs | None:
        """The pairs within `most` [q] that are `possible` [q, u, in the screen's order] and not `known` [q, m]."""
        row, place = positions(possible)
        crowded = self._crowded(row, len(possible), screen)
        if len(crowded):
            possible[crowded] = False
            row, place = positions(possible)
        column = screen.order[place]
        squared = self._squared(points, row, column)
        few = Pairs(row, column, squared).at(positions((squared <= most[row])[None])[1])
        if not len(crowded):
            return few
        many = _within(self._products(points.part(crowded)).scatter_(1, known[crowded], torch.inf), most[crowded])
        if many is None:
            return None
        row = torch.cat([few.row, crowded[many.row]])
        both = Pairs(row, torch.cat([few.column, many.column]), torch.cat([few.squared, many.squared]))
        return both.at(row.argsort(stable=True))

    def _products(self, points: Points) -> Tensor:
        """‖b‖² − 2 a·b [q, u]; −∞ for the point itself."""
        squared = self._product(points.a)
        return squared if points.own is None else squared.scatter_(1, points.own[:, None], -torch.inf)

    def _crowded(self, row: Tensor, q: int, screen: Screen) -> Tensor:
        """Points with so many pairs that the products of all voters take less time."""
        u = len(self._weight)
        work = (DENSE * torch.bincount(row, minlength=q)).clamp(max=u)
        screen.note(float(work.sum()), q * u)
        return torch.nonzero(work == u)[:, 0]

    def _squared(self, points: Points, row: Tensor, column: Tensor) -> Tensor:
        """The ‖b‖² − 2 a·b of pairs, point by point [p]."""
        assert self._ready.single is not None  # there is no screen without it
        products = sampled_products(points.a, self._ready.single, row, column)
        squared = self._norms[column].sub_(products, alpha=2)
        return squared if points.own is None else squared.masked_fill_(points.own[row] == column, -torch.inf)


def radii(squared: Tensor, weight: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """What the last voter has when there are enough, and what the k-th has [q]; of voters [q, m] and their weight."""
    itself = int(own is not None)
    k = min(NEIGHBOURS + itself, squared.shape[1])
    values, index = squared.topk(k, dim=1, largest=False)
    reached = weight.gather(1, index).cumsum(1) - itself >= NEIGHBOURS
    last = torch.where(reached.any(1), reached.int().argmax(1), k - 1)
    return values.gather(1, last[:, None])[:, 0], values[:, -1]


def _within(squared: Tensor, most: Tensor) -> Pairs | None:
    """The pairs up to `most` [q] among all [q, u]; None where they are too many to be candidates."""
    close = squared <= most[:, None]
    if how_many(close) > PAIRS_PROPOSED:
        return None
    row, column = positions(close)
    return Pairs(row, column, squared[row, column])


def _beside(*tables: Table) -> Table:
    squared, column = (torch.cat(parts, 1) for parts in zip(*tables, strict=True))
    return squared, column
