"""How numbers look to a reader: few digits for the eye, the full value kept beside them for a machine."""

from __future__ import annotations

from collections.abc import Sequence

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
