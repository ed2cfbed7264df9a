"""Numbers for the eye say what the value is, to the digits they show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audit.report.numbers import NOTHING, interval, number, percent, points

BACK = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")


def parsed(shown: str) -> float:
    return float(shown.replace(",", "").replace(" × 10", "e").translate(BACK))


@given(st.floats(-1e300, 1e300) | st.floats(-2e6, 2e6))
def test_shown_number_is_the_value_to_three_digits(value):
    assert "e" not in number(value)
    assert abs(parsed(number(value)) - value) <= 0.00501 * abs(value)


@given(st.integers(-(10**12), 10**12))
def test_integers_are_shown_in_full(value):
    assert parsed(number(value)) == value


@given(st.floats(-1, 1))
def test_shares_and_differences_keep_two_decimals(value):
    assert abs(float(percent(value).removesuffix(" %").translate(BACK)) - 100 * value) <= 0.00501
    assert abs(float(points(value).removesuffix(" points").translate(BACK)) - 100 * value) <= 0.00501


def test_what_does_not_exist_is_shown_as_such():
    assert number(None) == percent(None) == points(None) == NOTHING
    assert interval(None) == ""
