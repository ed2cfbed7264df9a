"""Where a value lies in a picture: positions and tick marks for the SVG macros, which cannot take logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from audit.report.numbers import number, shown

STEPS = (1, 2, 5, 10)
LETTER = 6.8  # about the width of a letter or digit at the pictures' font size, in a wide font


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to positions between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position, to a tenth of a unit; values beyond the ends are drawn at the ends.

        >>> Scale(0, 10, 100, 200)(2.5), Scale(1, 100, 0, 10, log=True)(10)
        (125.0, 5.0)
        """
        low, high, here = map(self._bent, (self.low, self.high, min(max(value, self.low), self.high)))
        return round(self.start + (here - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self, most: int = 5, kind: str = "number", across: bool = False) -> list[tuple[float, str]]:
        """Positions and labels of round values, at most about `most`; `across`: fewer where labels would touch."""
        while True:
            values = self._powers(most) if self.log else self._steps(most)
            found = [(self(value), power(value) if self.log else tick(value, kind)) for value in values]
            wide = max((len(label) for _, label in found), default=0) * LETTER + 8
            near = [abs(here - there) for (here, _), (there, _) in pairwise(found)]
            if not across or most == 1 or all(gap >= wide for gap in near):
                return found
            most -= 1

    def _bent(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _steps(self, most: int) -> list[float]:
        step = round_step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{index * step:.12g}") for index in range(first, last + 1)]

    def _powers(self, most: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first >= 2:
            return [10.0**power for power in range(first, last + 1, -(-(last - first + 1) // most))]
        between = [step * 10.0**power for power in range(first - 1, last + 1) for step in STEPS[:3]]
        inside = [value for value in between if self.low <= value * (1 + 1e-9) and value <= self.high * (1 + 1e-9)]
        return inside[:: -(-len(inside) // most)] if inside else []


def power(value: float) -> str:
    """A value on a logarithmic axis: powers of ten as such, where they are not easily read.

    >>> power(1e-7), power(0.01), power(20.0), power(1e6)
    ('10⁻⁷', '0.01', '20', '10⁶')
    """
    words = number(value)
    return words.removeprefix("1 × ") if "×" in words else words


def tick(value: float, kind: str) -> str:
    """A round value on an axis; a difference of shares in percentage points, with its sign.

    >>> tick(0.05, "points"), tick(-0.002, "points"), tick(0.0, "points"), tick(0.05, "share")
    ('+5', '−0.2', '0', '5 %')
    """
    if kind != "points":
        return shown(value, kind)
    return f"{'+' if value > 0 else ''}{number(round(100 * value, 6))}"


def tint(strength: float) -> str:
    """A blue as strong as a number between 0 and 1, never quite white.

    >>> tint(1.0), tint(0.0)
    ('#0072b2', '#d9eaf3')
    """
    return "#" + "".join(f"{round(255 + (end - 255) * (0.15 + 0.85 * strength)):02x}" for end in (0x00, 0x72, 0xB2))


def gutter(names: Iterable[str], most: float = 150) -> float:
    """Room for the longest of some words, within limits.

    >>> gutter(["fc1", "fc2"]), gutter(["encoder.layers.0.mlp.fc1.with.a.long.name"])
    (28.4, 150)
    """
    return min(most, round(8 + LETTER * max((len(name) for name in names), default=0), 1))


def round_step(step: float) -> float:
    """The next of 1, 2, 5, 10, … at any power of ten.

    >>> round_step(0.013), round_step(3.0), round_step(7)
    (0.02, 5.0, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(step))
    return next(float(f"{factor * power:.12g}") for factor in STEPS if factor * power >= step * (1 - 1e-9))


def axis(values: Iterable[float | None], start: float, end: float, log: bool = False, zero: bool = False) -> Scale:
    """A scale that holds all values; `zero` holds zero too. A logarithmic one holds the positive values."""
    kept = [value for value in values if value is not None and (value > 0 or not log)]
    kept += [0.0] if zero and not log else []
    low, high = (min(kept), max(kept)) if kept else (1.0, 10.0)
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)
    if log:
        return Scale(low / 1.15, high * 1.15, start, end, log=True)
    margin = 0.04 * (high - low)
    return Scale(low - margin * (low < 0 or not zero), high + margin * (high > 0 or not zero), start, end)


def thinned(values: Sequence[float], most: int = 120) -> list[tuple[int, float]]:
    """Rank (from 1) and value of at most `most` values: all of the first, ever fewer of the later ones, and the last.

    >>> thinned([5.0, 4.0, 3.0]), [rank for rank, _ in thinned([1.0] * 1000, 12)]
    ([(1, 5.0), (2, 4.0), (3, 3.0)], [1, 2, 4, 7, 12, 23, 43, 81, 152, 285, 534, 1000])
    """
    if len(values) <= most:
        return list(enumerate(values, start=1))
    ranks = sorted({round(len(values) ** (index / (most - 1))) for index in range(most)})
    return [(rank, values[rank - 1]) for rank in ranks]


def running(values: Sequence[float], most: int = 120) -> list[tuple[int, float]]:
    """Rank and running sum, thinned in the same way."""
    sums, total = [], 0.0
    for value in values:
        total += value
        sums.append(total)
    return thinned(sums, most)
