"""Samples as points: shifted and scaled by feature when they are compared, and made ready to be searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from audit.maths.nearest import ROUNDING
from audit.measures.hygiene.screen import Screen, worth_a_screen

CACHED = 1 << 16  # numbers in a block of differences: 512 KB, which a processor's cache holds
KEPT = 1 << 24  # numbers (64 MB) up to which samples are kept ready in single precision during a search …
SHARED = 1 << 22  # … and (16 MB) until the next search in the same space


class Ready:
    """Train samples b that are searched: what every search among them needs."""

    def __init__(self, space: Space, rows: Tensor) -> None:
        """The samples at `rows` [u] of train."""
        u, V = len(rows), len(space.varying)
        self.rows = rows
        self.norms = torch.zeros(u, dtype=torch.float64, device=rows.device)  # [u] ‖b‖²
        self.single = self.norms.new_empty(u, V, dtype=torch.float32) if u * V <= KEPT else None  # [u, V]
        self._screen: Screen | None = None
        for part in cached_blocks(u, space.train.shape[1]):
            single = None if self.single is None else self.single[part]
            space.place(space.train[rows[part]], single, self.norms[part])

    def screen(self, points: int) -> Screen | None:
        """The screen for a search around so many points, where it may pay."""
        if self._screen is None and self.single is not None and worth_a_screen(self.single, points):
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

    @classmethod
    def of(cls, name: str, train: Tensor, test: Tensor, standardise: bool = False) -> Space:
        """A space centred on train; a feature that never varies in train keeps its own unit."""
        train, test = train.flatten(1), test.flatten(1)
        mean = train.mean(0, dtype=torch.float64)
        scale = torch.ones_like(mean)
        if standardise:
            deviation = _deviation(train)
            constant = deviation <= ROUNDING * mean.abs()
            scale = torch.where(constant, scale, 1 / deviation.where(~constant, scale))
        first = train[0].double()
        mean_is_first = (mean - first).abs() <= len(train) * ROUNDING * first.abs()
        return cls(name, train, test, torch.where(mean_is_first, first, mean), scale)  # a constant becomes exactly zero

    @cached_property
    def varying(self) -> Tensor:
        """Features that differ between train samples: no other one can tell which of them is near."""
        return torch.nonzero(self.train.amax(0) != self.train.amin(0))[:, 0]

    @cached_property
    def _kept(self) -> list[Ready]:
        return []

    def ready(self, rows: Tensor) -> Ready:
        """The train samples at `rows` [u] made ready; once for all searches if they are few."""
        for one in self._kept:
            if one.rows is rows:
                return one
        made = Ready(self, rows)
        if len(rows) * self.train.shape[1] <= SHARED:
            self._kept[:] = [made]
        return made

    def scaled(self, x: Tensor) -> Tensor:
        """Samples x [q, D] shifted and scaled."""
        return (x.double() - self.shift).mul_(self.scale)

    def place(self, x: Tensor, single: Tensor | None, norms: Tensor) -> None:
        """Writes the features that vary, in single precision [q, V], and ‖x‖² [q] of samples x [q, D]."""
        for part in cached_blocks(len(x), x.shape[1]):
            scaled = self.scaled(x[part])
            if single is not None:
                single[part] = scaled.float().index_select(1, self.varying)
            norms[part] = scaled.square_().sum(1)


def cached_blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` rows of `width` numbers that a processor's cache holds."""
    size = max(1, CACHED // max(1, width))
    return (slice(start, start + size) for start in range(0, count, size))


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of every feature of x [n, D] in float64; exactly zero for one that never varies."""
    blocks = list(cached_blocks(len(x), x.shape[1]))
    first = x[0].double()  # what is left after its subtraction is exactly zero for a constant
    mean = torch.stack([(x[part].double() - first).sum(0) for part in blocks]).sum(0) / len(x)
    squares = ((x[part].double() - first).sub_(mean).square_().sum(0) for part in blocks)
    return torch.stack(list(squares)).sum(0).div_(len(x)).sqrt_()
