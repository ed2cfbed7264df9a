"""Is a report reproduced? Compares every number of a report with those of a second audit, by path. No torch.

The same versions on the same machine give the same bits. Elsewhere sums are rounded in another order, so numbers count
as reproduced within the tolerances below; how many are the same to the last bit is said either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

RELATIVE = 1e-6  # of the number, or of the largest number in its list
NOISE = 1e-6  # numbers that are rounding errors themselves: absolute, or the tolerance that stands beside them
NOISE_KEYS = ("residual", "orthonormality", "max_abs_diff")
NOT_COMPARED = ("created", "command", "timings", "tool", "settings", "reference")
"""The moment, the machine, what was asked for, and past audits that were drawn beside this one."""


@dataclass(frozen=True)
class Difference:
    """A number that came out differently."""

    path: str
    before: float | bool | None
    now: float | bool | None
    allowed: float = 0.0  # by how much it may differ


@dataclass(frozen=True)
class Reproduction:
    """What became of a second audit."""

    compared: int  # numbers, booleans and nulls in the report
    identical: int  # to the last bit
    largest: Difference | None  # of those let through, the one that comes nearest to its tolerance
    differences: tuple[Difference, ...]  # beyond what is allowed, in the order of the report
    changed: tuple[str, ...] = ()  # what is not as it was when the report was made: versions, platform

    @property
    def reproduced(self) -> bool:
        """Whether every number is there again."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, as `gen-audit verify --json` prints them."""
        return {"reproduced": self.reproduced, **asdict(self)}


def reproduction(before: Mapping[str, Any], now: Mapping[str, Any]) -> Reproduction:
    """Compares the JSON of a report with that of a second audit. What only the second has is new, not different."""
    pairs = [
        pair for key, value in before.items() if key not in NOT_COMPARED for pair in _pairs(key, value, now.get(key))
    ]
    other = [pair for pair in pairs if not _same(pair.before, pair.now)]
    beyond = tuple(pair for pair in other if not _close(pair))
    inside = [pair for pair in other if _close(pair)]
    changed = tuple(
        f"{name} was {value}, is {now['tool'].get(name)}"
        for name, value in before["tool"].items()
        if value != now["tool"].get(name)
    )
    largest = max(inside, key=_used_up, default=None)
    return Reproduction(len(pairs), len(pairs) - len(other), largest, beyond, changed)


def _pairs(
    path: str, before: Any, now: Any, near: Mapping[str, Any] | None = None, scale: float = 0.0
) -> Iterator[Difference]:
    """Every number under a path, beside what is there now. Words are not compared: they follow from the numbers."""
    if isinstance(before, Mapping):
        for key, value in before.items():
            inner = now.get(key) if isinstance(now, Mapping) else None
            yield from _pairs(f"{path}.{key}", value, inner, before)
    elif isinstance(before, list):
        there = now if isinstance(now, list) else []
        largest = max((abs(item) for item in before if _number(item)), default=0.0)
        if len(there) != len(before):
            yield Difference(f"{path} (length)", len(before), len(there))
        for place, item in enumerate(before[: len(there)]):
            yield from _pairs(f"{path}[{place}]", item, there[place], near, largest)
    elif not isinstance(before, str):
        kept = now if now is None or isinstance(now, (bool, int, float)) else None
        yield Difference(path, before, kept, _allowed(path, before, near or {}, scale))


def _allowed(path: str, before: Any, near: Mapping[str, Any], scale: float) -> float:
    if not isinstance(before, float):  # counts, booleans and nulls are the same or not
        return 0.0
    rounding = path.endswith(NOISE_KEYS) or ("tolerance" in near and path.endswith(".value"))
    if rounding:
        return float(near["tolerance"]) if near.get("tolerance") is not None else NOISE
    return RELATIVE * max(abs(before), scale)


def _same(before: Any, now: Any) -> bool:
    return before == now and (before is None) == (now is None)


def _close(pair: Difference) -> bool:
    return _number(pair.before) and _number(pair.now) and abs(pair.before - pair.now) <= pair.allowed  # type: ignore[operator]


def _used_up(pair: Difference) -> float:
    """How much of its tolerance a difference takes."""
    assert pair.before is not None and pair.now is not None
    return abs(pair.before - pair.now) / pair.allowed


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
