"""Distances that cannot be small, told from a few numbers a sample.

A subspace brings two points closer, never apart: ‖Qᵀa − Qᵀb‖ ≤ ‖a − b‖ for any Q with orthonormal columns.
With Q along the directions in which the samples spread most, few pairs pass, and only those are measured in full.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from audit.maths.nearest import ROUNDING_SINGLE

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
        self.place = torch.argsort(self.order)  # [u] where each b is seen
        self._seen = pad((b @ self._basis)[self.order], (0, 0, 0, filled))  # [u and a few, k]
        self._norms = pad(self._seen[:u].square().sum(1), (0, filled), value=torch.inf)
        self._largest = self._norms[:u].max()
        self._error = self._rounding(b.shape[1], largest)
        self._taken, self._spared = 0.0, 0.0

    def see(self, a: Tensor, own: Tensor | None) -> Tensor:
        """Points a [q, V] in the subspace [q, k]; `own` [q]: which b they are."""
        return a @ self._basis if own is None else self._seen[self.place[own]]

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

    def limit(self, seen: Tensor, squared: Tensor, reach: Tensor, features: int) -> Tensor:
        """What the bounds of a point do not exceed where ‖a − b‖² ≤ `reach` [q]; `squared`: ‖a‖² [q]."""
        norm = seen.double().square().sum(1)
        within = reach.clamp(min=0).sqrt() + self._error + self._rounding(features, squared)
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
