"""Any interval, any limit: what is called passed keeps the limit wholly, what is called failed breaks it wholly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audit.policy.baseline import span, status_of

number = st.floats(-1e6, 1e6, allow_nan=False)
interval = st.tuples(number, number).map(sorted).map(tuple)
bound = st.sampled_from(["max", "min"])


def keeps(value: float, kind: str, limit: float) -> bool:
    return value <= limit if kind == "max" else value >= limit


@given(number, st.none() | interval, bound, number)
def test_the_status_is_what_both_ends_say(value, ends, kind, limit) -> None:
    kept = [keeps(end, kind, limit) for end in span(value, ends)]
    expected = "passed" if all(kept) else "inconclusive" if any(kept) else "failed"
    assert status_of(value, ends, kind, limit) == expected


@given(number, interval, bound, number)
def test_without_its_interval_a_number_is_never_inconclusive_nor_judged_the_other_way(value, ends, kind, limit) -> None:
    alone, whole = status_of(value, None, kind, limit), status_of(value, ends, kind, limit)
    assert alone == ("passed" if keeps(value, kind, limit) else "failed")
    assert whole in (alone, "inconclusive")


@given(number, interval, number)
def test_a_minimum_is_a_maximum_upside_down(value, ends, limit) -> None:
    flipped = (-ends[1], -ends[0])
    assert status_of(value, ends, "min", limit) == status_of(-value, flipped, "max", -limit)


@given(number, interval, number, st.floats(0, 1e6))
def test_a_wider_limit_never_turns_passed_into_failed(value, ends, limit, more) -> None:
    order = ["failed", "inconclusive", "passed"]
    tight, wide = status_of(value, ends, "max", limit), status_of(value, ends, "max", limit + more)
    assert order.index(wide) >= order.index(tight)
