"""Is a report reproduced? Compares all that a report says with what a second audit says, by path. No torch.

The same versions on the same machine give the same bits. Elsewhere sums are rounded in another order, so numbers count
as reproduced within the tolerances below; how many are the same to the last bit is said either way. Single words, such
as a finding's level or a check's status, must be the same everywhere; sentences quote rounded numbers, so they are
compared only where the same versions on the same platform wrote both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from audit.report.paths import children, join

DIGITS = {"float64": 6, "float32": 4}
"""Of a number, or of the largest one in its list, by the arithmetic of the passes. On a LeNet one thread and two agree
to 8 digits in float64, and to 5 in float32; most to 14 and 10. A Krylov space amplifies rounding, so the ends of
the intervals of λ_max have fewest in float64; in float32 the log-determinants of gradients have."""
RELATIVE = 10.0 ** -DIGITS["float64"]
NOISE = 1e-6  # numbers that are rounding errors themselves: absolute, or the tolerance that stands beside them
NOISE_KEYS = ("residual", "orthonormality", "max_abs_diff")
NOT_COMPARED = ("created", "command", "timings", "tool", "settings", "reference", "doctor")
"""The moment, the machine, what was asked for, past audits that were drawn beside this one, and trials in single
precision, whose tiny losses are rounding; what the doctor says of them is compared among the findings."""
PLACES = ("model.path", "model.notes", "data.path", "data.notes")  # where the files lie, which may be anywhere
PICTURE = ".png"
ALWAYS_THERE = ("hygiene", "checks", "warnings", "findings")  # whichever version made the report

Value = float | bool | str | None


@dataclass(frozen=True)
class Difference:
    """A number or word that came out differently."""

    path: str
    before: Value
    now: Value
    allowed: float = 0.0  # by how much it may differ


@dataclass(frozen=True)
class Reproduction:
    """What became of a second audit."""

    compared: int  # numbers, booleans, nulls and words in the report
    identical: int  # to the last bit
    largest: Difference | None  # of those let through, the one that comes nearest to its tolerance
    differences: tuple[Difference, ...]  # beyond what is allowed, in the order of the report
    changed: tuple[str, ...] = ()  # what is not as it was when the report was made: versions, platform

    @property
    def reproduced(self) -> bool:
        """Whether everything is there again."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, as `gen-audit verify --json` prints them."""
        return {"reproduced": self.reproduced, **asdict(self)}


def reproduction(before: Mapping[str, Any], now: Mapping[str, Any]) -> Reproduction:
    """Compares the JSON of a report with that of a second audit.

    What only the second has is new where another version made it, and else was taken out of the report.
    """
    same_tool = before["tool"] == now["tool"]
    keys = dict.fromkeys((*_keys(before, now, same_tool), *(key for key in ALWAYS_THERE if key in now)))
    found = (_pairs(key, before.get(key), now.get(key), same_tool) for key in keys if key not in NOT_COMPARED)
    looser = 10.0 ** (DIGITS["float64"] - DIGITS[(before.get("plan") or {}).get("arithmetic", "float64")])
    pairs = [replace(pair, allowed=looser * pair.allowed) for each in found for pair in each]
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


def _keys(before: Mapping[str, Any], now: Any, same_tool: bool) -> Iterable[str]:
    return {**before, **now} if same_tool and isinstance(now, Mapping) else before


def _pairs(
    path: str, before: Any, now: Any, same_tool: bool, near: Mapping[str, Any] | None = None, scale: float = 0.0
) -> Iterator[Difference]:
    """Everything under a path that is compared, beside what is there now."""
    if path in PLACES:
        return
    inside, there = children(before), children(now) or {}
    if inside is None:
        if same_tool or not isinstance(before, str) or _is_word(path, before):
            yield Difference(path, before, _plain(now), _allowed(path, before, near or {}, scale))
    elif isinstance(before, Mapping):
        for key in _keys(before, now, same_tool):
            yield from _pairs(join(path, key), before.get(key), there.get(key), same_tool, before)
    else:
        largest = max((abs(item) for item in before if _number(item)), default=0.0)
        if len(there) != len(before):
            yield Difference(f"{path} (length)", len(before), len(there))
        for place, item in [*inside.items()][: len(there)]:
            yield from _pairs(join(path, place), item, there.get(place), same_tool, near, largest)


def _is_word(path: str, text: str) -> bool:
    return " " not in text and not path.endswith(PICTURE)


def _plain(value: Any) -> Value:
    """A value as it is; of a whole block that stands where there was none, only that."""
    return value if children(value) is None else "a block"


def _allowed(path: str, before: Any, near: Mapping[str, Any], scale: float) -> float:
    if not isinstance(before, float):  # counts, booleans and nulls are the same or not
        return 0.0
    rounding = path.endswith(NOISE_KEYS) or ("tolerance" in near and path.endswith(".value"))
    if rounding:
        return float(near["tolerance"]) if near.get("tolerance") is not None else NOISE
    return RELATIVE * max(abs(before), scale)


def _same(before: Any, now: Any) -> bool:
    return bool(before == now) and isinstance(before, bool) == isinstance(now, bool)


def _close(pair: Difference) -> bool:
    return _number(pair.before) and _number(pair.now) and abs(pair.before - pair.now) <= pair.allowed  # type: ignore[operator]


def _used_up(pair: Difference) -> float:
    """How much of its tolerance a difference takes."""
    return float(abs(pair.before - pair.now)) / pair.allowed  # type: ignore[operator]  # both are numbers


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
