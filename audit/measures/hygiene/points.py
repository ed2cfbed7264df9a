"""Samples as points that are ready to be searched, and distances that cannot be small, told from a few numbers each.

A subspace brings two points closer, never apart: ‖Qᵀa − Qᵀb‖ ≤ ‖a − b‖ for any Q with orthonormal columns.
With Q along the directions in which the samples spread most, few pairs pass, and only those are measured in full.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from audit.maths.blocks import CACHED, HELD, blocks

ROUNDING, ROUNDING_SINGLE = (torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32))
RANK = 96  # directions
WIDTH = 4  # times as many features there must be, or a product over all of them is as quick
FEWEST = 500  # points on either side, or finding the directions takes longer than it saves
SAMPLE = 500  # points that the directions are taken from
STEPS = 2  # of the power method: the directions need not be the best, the bound holds for all
PAYS = 0.6  # of the products without a screen: if more are left, there is nothing to gain
GROUPS = 48  # that the points are divided into when the nearest are looked for: well more than are asked for
MEMBERS = 16  # of a group when the smallest of many numbers are looked for


class Screen:
    """The points b as seen in the subspace, in an order of their own: by chance, so that no group of them is alike."""

    def __init__(self, b: Tensor, largest: Tensor) -> None:
        """The points b [u, V] in single precision, and the largest ‖b‖²."""
        u, filled = len(b), -len(b) % GROUPS  # groups of one size: what fills them up is infinitely far
        self._basis = directions(b)
        self.order = torch.randperm(u, generator=torch.Generator().manual_seed(0)).to(b.device)  # [u] which b is seen
        self._seen = pad((b @ self._basis)[self.order], (0, 0, 0, filled))  # [u and a few, k]
        self._norms = pad(self._seen[:u].square().sum(1), (0, filled), value=torch.inf)
        self._largest = self._norms[:u].max()
        self._error = self._rounding(b.shape[1], largest)
        self._taken, self._spared = 0.0, 0.0

    def see(self, a: Tensor) -> Tensor:
        """Points a [q, V] in the subspace [q, k]."""
        return a @ self._basis

    def bounds(self, seen: Tensor) -> Tensor:
        """‖Qᵀb‖² − 2 Qᵀa·Qᵀb [q, u and a few], by place."""
        return torch.addmm(self._norms, seen, self._seen.T, alpha=-2)

    def closest(self, bounds: Tensor, many: int) -> Tensor:
        """Places of about the smallest bounds of every point [q, many]: each the smallest of its group."""
        groups = bounds.view(len(bounds), GROUPS, -1)
        on_cpu = bounds.device.type == "cpu"  # where numpy is ten times as quick
        which = torch.from_numpy(groups.numpy().argmin(2)) if on_cpu else groups.argmin(2)
        places = which + groups.shape[2] * torch.arange(GROUPS, device=bounds.device)
        return places.gather(1, bounds.gather(1, places).topk(many, dim=1, largest=False, sorted=False).indices)

    def limit(self, seen: Tensor, squared: Tensor, squared_radius: Tensor, features: int) -> Tensor:
        """What the bounds of a point do not exceed where ‖a − b‖² ≤ `squared_radius` [q]; `squared`: ‖a‖² [q]."""
        norm = seen.double().square().sum(1)
        within = squared_radius.clamp(min=0).sqrt() + self._error + self._rounding(features, squared)
        rounding = (RANK + 8) * ROUNDING_SINGLE * (norm + self._largest)
        return (within.square() - norm + rounding).float()

    def note(self, products: float, instead_of: float) -> None:
        """Takes down how many products were taken, and how many without the screen."""
        self._taken, self._spared = self._taken + products, self._spared + instead_of

    @property
    def pays(self) -> bool:
        """Whether the screen has spared enough so far to be worth its own time."""
        return self._taken <= PAYS * self._spared

    def _rounding(self, features: int, squared: Tensor) -> Tensor:
        """By how much a point moves when Qᵀa is rounded, from ‖a‖²: √k numbers, each a sum over the features."""
        return math.sqrt(RANK) * (features + 8) * ROUNDING_SINGLE * squared.double().sqrt()


def worth_a_screen(b: Tensor, points: int) -> bool:
    """Whether a screen of b [u, V] may spare more than it takes to make, for so many points."""
    return min(len(b), points) >= FEWEST and b.shape[1] >= WIDTH * RANK


def directions(b: Tensor) -> Tensor:
    """An orthonormal basis [V, k] of about the directions in which the points b [u, V] spread most."""
    some = b[:: max(1, len(b) // SAMPLE)][:SAMPLE]
    some = some / some.abs().max().clamp(min=torch.finfo(b.dtype).tiny)  # its square neither overflows nor vanishes
    basis = torch.randn(b.shape[1], RANK, generator=torch.Generator().manual_seed(0)).to(b)
    for _ in range(STEPS):
        basis = some.T @ (some @ basis)
        basis /= basis.norm().clamp(min=torch.finfo(b.dtype).tiny)
    orthonormal: Tensor = torch.linalg.qr(basis.double())[0]
    return orthonormal.to(b)  # orthonormal but for the rounding of its entries


def smallest(rough: Tensor, many: int) -> Tensor:
    """Columns of about the smallest numbers of every row [q, many]: each the smallest of its group."""
    size = MEMBERS if rough.shape[1] >= 2 * MEMBERS * many else 1
    apart = rough.shape[1] // size  # a group's members: every apart-th column
    least = rough[:, : size * apart].view(-1, size, apart).amin(1)
    group = least.topk(min(many, apart), dim=1, largest=False).indices
    members = group[:, :, None] + apart * torch.arange(size, device=rough.device)
    which = rough.gather(1, members.flatten(1)).view_as(members).argmin(2)
    return group + apart * which


def how_many(mask: Tensor) -> int:
    """How many of them are true."""
    return int(np.count_nonzero(mask.numpy()) if mask.device.type == "cpu" else mask.count_nonzero())


def positions(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of what is true, row by row."""
    if mask.device.type == "cpu":  # numpy is twice as quick
        flat = torch.from_numpy(mask.numpy().reshape(-1).nonzero()[0])
        row = flat // mask.shape[1]
        return row, flat - row * mask.shape[1]
    row, column = torch.nonzero(mask, as_tuple=True)
    return row, column


def sampled_products(a: Tensor, b: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """The a·b of pairs [p], which are in order of their row."""
    ends = pad(torch.bincount(row, minlength=len(a)).cumsum(0), (1, 0))
    with warnings.catch_warnings():  # of sparse tensors in general, which says nothing about this product
        warnings.simplefilter("ignore")
        pairs = torch.sparse_csr_tensor(ends, column, a.new_zeros(len(column)), (len(a), len(b)))
        products: Tensor = torch.sparse.sampled_addmm(pairs, a, b.T, beta=0).values()
    return products


# Samples as points: shifted and scaled by feature when they are compared, and made ready to be searched.


class Ready:
    """Train samples b that are searched: what every search among them needs."""

    def __init__(self, space: Space, rows: Tensor) -> None:
        """The samples at `rows` [u] of train."""
        self.norms = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)  # [u] ‖b‖²
        self.single = self.norms.new_empty(len(rows), len(space.varying), dtype=torch.float32)  # [u, V]
        self._screen: Screen | None = None
        space.place(space.train, rows, self.single, self.norms)
        self._single_norms = self.norms.float()

    def products(self, a: Tensor) -> Tensor:
        """‖b‖² − 2 a·b [q, u] of points a [q, V]."""
        return torch.addmm(self._single_norms, a, self.single.T, alpha=-2)

    def products_of(self, a: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """The ‖b‖² − 2 a·b of pairs, point by point [p]."""
        return self._single_norms[column].sub_(sampled_products(a, self.single, row, column), alpha=2)

    def screen(self, points: int) -> Screen | None:
        """The screen for a search around so many points, where it may pay."""
        if self._screen is None and worth_a_screen(self.single, points):
            self._screen = Screen(self.single, self.norms.max())
        return self._screen if self._screen is None or self._screen.pays else None


@dataclass(frozen=True)
class Space:
    """Samples as points, in the numbers they came in; shifted and scaled, by feature, when they are compared."""

    name: str  # "input", "standardised input" or "features"
    train: Tensor  # [n, D]
    test: Tensor  # [m, D]
    shift: Tensor  # [D] float64: distances do not change by it, their rounding does
    scale: Tensor  # [D] float64
    varying: Tensor  # [V] features that differ between train samples: no other one can tell which of them is near

    @classmethod
    def of(cls, name: str, train: Tensor, test: Tensor, standardise: bool = False) -> Space:
        """A space centred on train; a feature that never varies in train keeps its own unit."""
        train, test = train.flatten(1), test.flatten(1)
        mean = _mean(train)
        scale = torch.ones_like(mean)
        if standardise:
            deviation = _deviation(train)
            constant = deviation <= ROUNDING * mean.abs()
            scale = torch.where(constant, scale, 1 / deviation.where(~constant, scale))
        first = train[0].double()
        mean_is_first = (mean - first).abs() <= len(train) * ROUNDING * first.abs()
        shift = torch.where(mean_is_first, first, mean)  # a constant becomes exactly zero
        varying = torch.nonzero(train.amax(0) != train.amin(0))[:, 0]
        return cls(name, train, test, shift, scale, varying)

    def scaled(self, x: Tensor) -> Tensor:
        """Samples x [q, D] shifted and scaled."""
        return (x.double() - self.shift).mul_(self.scale)

    def place(self, x: Tensor, rows: Tensor, single: Tensor | None, norms: Tensor) -> None:
        """Writes the features that vary, in single precision [q, V], and ‖x‖² [q] of the samples at `rows` [q] of x."""
        for part in blocks(len(rows), x.shape[1], CACHED):
            scaled = self.scaled(x[rows[part]])
            if single is not None:
                single[part] = scaled.float().index_select(1, self.varying)
            norms[part] = scaled.square_().sum(1)


def _mean(x: Tensor) -> Tensor:
    """Of every feature of x [n, D] in float64, of which a copy is never made of all samples at once."""
    parts = (x[part].sum(0, dtype=torch.float64) for part in blocks(len(x), x.shape[1], HELD))
    return torch.stack(list(parts)).sum(0) / len(x)


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of every feature of x [n, D] in float64; exactly zero for one that never varies."""
    parts = list(blocks(len(x), x.shape[1], CACHED))
    first = x[0].double()  # what is left after its subtraction is exactly zero for a constant
    mean = torch.stack([(x[part].double() - first).sum(0) for part in parts]).sum(0) / len(x)
    squares = ((x[part].double() - first).sub_(mean).square_().sum(0) for part in parts)
    return torch.stack(list(squares)).sum(0).div_(len(x)).sqrt_()
