"""Plain numerics that know nothing of networks or reports."""

from __future__ import annotations

Interval = tuple[float, float] | None
"""Both ends of a 95 % interval; None where there is none."""
