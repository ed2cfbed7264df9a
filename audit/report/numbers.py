"""A report's numbers: how they look to a reader, and whether a second audit finds the same ones. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from audit.report.paths import children, join

DIGITS = 3
MINUS = "\N{MINUS SIGN}"
NOTHING = "–"
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float | None) -> str:
    """Three significant digits; powers of ten where the number is very small or very large.

    >>> number(0.29671), number(-12), number(1.5e-7), number(24910), number(999.9)
    ('0.297', '−12', '1.5 × 10⁻⁷', '24,910', '1,000')
    """
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    mantissa, power = f"{value:.{DIGITS - 1}e}".split("e")
    exponent = int(power)  # of the rounded value: 999.9 is shown as 1,000
    if -4 <= exponent < DIGITS:
        return f"{value:.{DIGITS}g}".replace("-", MINUS)
    if DIGITS <= exponent < 6:
        return f"{value:,.0f}".replace("-", MINUS)
    shown = mantissa.rstrip("0").rstrip(".").replace("-", MINUS)
    return f"{shown} × 10{str(exponent).translate(SUPERSCRIPTS)}"


def percent(value: float | None) -> str:
    """A share as a percentage with two decimals.

    >>> percent(0.072), percent(-0.001), percent(None)
    ('7.20 %', '−0.10 %', '–')
    """
    return NOTHING if value is None else f"{100 * value:.2f} %".replace("-", MINUS)


def share(value: float | None) -> str:
    """A part of a whole, without decimals.

    >>> share(0.2598), share(-0.004), share(1.2)
    ('26 %', '0 %', '120 %')
    """
    return NOTHING if value is None else f"{signed(100 * value, 0).lstrip('+')} %"


def points(value: float | None) -> str:
    """A difference of two shares, in percentage points and with its sign.

    >>> points(0.0717), points(-0.01), points(0.0)
    ('+7.17 points', '−1.00 points', '0.00 points')
    """
    return NOTHING if value is None else f"{signed(100 * value, 2)} points"


def signed(value: float, decimals: int) -> str:
    """A fixed number of decimals with a sign, and none for zero."""
    shown = f"{value:+.{decimals}f}"
    return shown.replace("-", MINUS) if shown.strip("+-0.") else shown.lstrip("+-")


def shown(value: float | None, kind: str = "number") -> str:
    """A value as a number, percent, share or points, or as a count of a hundred."""
    if kind == "count":
        return share(value).removesuffix(" %")
    return {"percent": percent, "share": share, "points": points}.get(kind, number)(value)


def interval(bounds: Sequence[float] | None, kind: str = "number") -> str:
    """Both ends of an interval, or nothing where there is none.

    >>> interval([0.056, 0.089], "percent"), interval([0.25, 0.34]), interval([-0.01, 0.089], "points")
    ('5.60 % to 8.90 %', '0.25 to 0.34', '−1.00 to +8.90 points')
    """
    if bounds is None:
        return ""
    low, high = bounds
    if kind == "points":
        return f"{signed(100 * low, 2)} to {points(high)}"
    return f"{shown(low, kind)} to {shown(high, kind)}"


def seconds(value: float) -> str:
    """A duration for the eye.

    >>> seconds(0.0123), seconds(12.34), seconds(3725)
    ('0.01 s', '12.3 s', '1 h 2 min')
    """
    if value < 100:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


# Is a report reproduced? All that it says is compared with what a second audit says, by path.
#
# The same versions on the same machine give the same bits. Elsewhere sums are rounded in another order, so numbers
# count as reproduced within the tolerances below; how many are the same to the last bit is said either way. Single
# words, such as a finding's level or a check's status, must be the same everywhere; sentences quote rounded numbers, so
# they are compared only where the same versions on the same platform wrote both.


REPRODUCED = {"float64": 6, "float32": 4}
"""Of a number, or of the largest one in its list, by the arithmetic of the passes. On a LeNet one thread and two agree
to 8 digits in float64, and to 5 in float32; most to 14 and 10. A Krylov space amplifies rounding, so the ends of
the intervals of λ_max have fewest in float64; in float32 the log-determinants of gradients have."""
RELATIVE = 10.0 ** -REPRODUCED["float64"]
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
    looser = 10.0 ** (REPRODUCED["float64"] - REPRODUCED[(before.get("plan") or {}).get("arithmetic", "float64")])
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
