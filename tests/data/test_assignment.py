"""The best assignment against trying all, cycles that make up their permutation, and the sign test by counting."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING

from audit.data.class_order import best_assignment, cycles, sign_test


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(-9, 9), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_no_other_assignment_gains_more(rows: list[list[int]]) -> None:
    gain = np.array(rows, float)
    found = best_assignment(gain)
    assert sorted(found) == list(range(len(rows)))
    most = max(sum(gain[k, column] for k, column in enumerate(other)) for other in permutations(range(len(rows))))
    assert gain[np.arange(len(rows)), found].sum() == most


@given(st.permutations(list(range(7))))
def test_cycles_make_up_the_permutation(order: list[int]) -> None:
    moved = {}
    for cycle in cycles(np.array(order)):
        assert len(cycle) > 1
        moved |= dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    assert [moved.get(k, k) for k in range(7)] == order


@pytest.mark.parametrize("tosses", [1, 4, 7])
def test_the_sign_test_counts_all_sequences(tosses: int) -> None:
    heads = [sum(sequence) for sequence in product((0, 1), repeat=tosses)]
    for least in range(tosses + 1):
        assert sign_test(least, tosses) == pytest.approx(np.mean([count >= least for count in heads]), rel=ROUNDING)
