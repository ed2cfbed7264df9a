"""Whether train and test have the classes of positions in like proportions."""

from __future__ import annotations

import numpy as np

from audit.measures.hygiene.measure import class_balance, tag_balance

NAMES = ["a", "b", "c"]


def test_positions_without_a_label_do_not_count() -> None:
    y, y_test = np.array([[0, 1, -100], [1, 2, 0]]), np.array([[2, -100, -100], [0, 1, 1]])
    found = tag_balance(y, y_test, NAMES, draws=50, seed=0)
    assert found.train == {"a": 2, "b": 2, "c": 1} and found.test == {"a": 1, "b": 2, "c": 1}


def test_the_same_samples_in_both_do_not_differ() -> None:
    y = np.random.default_rng(0).integers(-1, 3, (40, 6))
    found = tag_balance(y, y, NAMES, draws=200, seed=0)
    assert found.p_value is not None and found.p_value > 0.9 and not found.differ


def test_other_proportions_differ() -> None:
    rng = np.random.default_rng(1)
    y, y_test = rng.choice(3, (60, 8), p=[0.6, 0.3, 0.1]), rng.choice(3, (60, 8), p=[0.1, 0.3, 0.6])
    assert tag_balance(y, y_test, NAMES, draws=200, seed=0).differ


def test_whole_samples_are_divided_anew_and_not_positions() -> None:
    """Every sample has one class throughout: 30 labels of it are no more evidence than one."""
    rng, called, unaware = np.random.default_rng(2), 0, 0
    for seed in range(40):
        y, y_test = (np.repeat(rng.integers(0, 3, (n, 1)), 30, axis=1) for n in (30, 20))
        called += bool(tag_balance(y, y_test, NAMES, draws=100, seed=seed).differ)
        unaware += bool(class_balance(y.ravel(), y_test.ravel(), NAMES, draws=100, seed=seed).differ)
    assert called <= 3  # of 40, at a level of 1 %
    assert unaware >= 25  # or this test could not tell the two apart
