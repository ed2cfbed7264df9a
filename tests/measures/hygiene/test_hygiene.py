"""Equal rows: duplicates and conflicts, against loops over all pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hygiene_cases import blobs, coarse, measured, network, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from references import hygiene as reference

from audit.measures.hygiene.duplicates import Twins, repeats, row_ids


@settings(max_examples=40, deadline=None)
@given(rng=coarse, n=st.integers(1, 30), m=st.integers(1, 20), features=st.integers(1, 4))
def test_duplicates_and_conflicts_are_those_of_loops_over_all_pairs(rng, n: int, m: int, features: int) -> None:
    x, x_test = (rng.integers(0, 3, (size, features)).astype(np.float32) for size in (n, m))
    y, y_test = (rng.integers(0, 2, size) for size in (n, m))
    twins = Twins.of((x, y), (x_test, y_test))
    assert (
        int(twins.across.sum()),
        repeats(twins.train_x),
        repeats(twins.test_x),
    ) == reference.duplicates(rows(x), rows(x_test))
    found = int(twins.conflicts_in_train.sum()), int(twins.conflicts_across.sum())
    assert found == reference.conflicts(rows(x), y.tolist(), rows(x_test), y_test.tolist())
    for train, test in twins.pairs():
        assert (x[train] == x_test[test]).all()
        assert y[train] == y_test[test] or not twins.across_same_label[test]


def test_minus_zero_is_zero_and_number_types_do_not_matter() -> None:
    assert row_ids(np.array([[0.0], [1.0]], np.float32), np.array([[-0.0], [1.0]]))[1].tolist() == [0, 1]
    assert row_ids(np.array([[True], [False]]), np.array([[1], [0]], np.int64))[1].tolist() == [0, 1]


def test_pairs_and_suspects_name_positions_in_the_split_as_stored(make_audit) -> None:
    x, y = blobs(60, 0)
    audit = make_audit(network(6, 3), x, y, np.concatenate([x[7:8], blobs(30, 1)[0]]), np.append(y[7], blobs(30, 1)[1]))
    train = replace(audit.data.train, index=np.arange(60) * 10 + 5)
    test = replace(audit.data.test, index=np.arange(31) + 100)
    found = measured(replace(audit, data=replace(audit.data, train=train, test=test)))
    assert [(pair.train, pair.test, pair.same_label) for pair in found.duplicate_pairs] == [(75, 100, True)]
