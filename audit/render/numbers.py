"""How numbers look on a page: as everywhere else, see `audit.numbers`."""

from __future__ import annotations

from audit.numbers import NOTHING, interval, number, percent, points, seconds, share, shown, signed

__all__ = ["NOTHING", "interval", "number", "percent", "points", "seconds", "share", "shown", "signed"]
