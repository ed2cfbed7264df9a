from __future__ import annotations

import numpy as np
import pytest

from audit.outcome import Outcome
from audit.sanity import chance_warning

CLASSES = ["a", "b", "c", "d"]


def outcome(predicted: np.ndarray, labels: np.ndarray, classes: int = 4) -> Outcome:
    return Outcome(np.eye(classes)[predicted], labels, np.zeros(len(labels)), (predicted != labels).astype(float))


def test_a_model_that_learnt_something_is_left_alone() -> None:
    labels = np.arange(400) % 4
    predicted = np.where(np.arange(400) % 10 < 4, labels, (labels + 1 + np.arange(400) % 3) % 4)
    assert chance_warning(outcome(predicted, labels), CLASSES) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_guesser_is_called_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    warning = chance_warning(outcome(rng.integers(4, size=400), np.arange(400) % 4), CLASSES)
    assert warning is not None
    assert "no better than guessing on its own train data" in warning
    assert "Preprocessing (scale, mean/std, channel order) or class order is probably not" in warning


def test_answering_the_common_class_is_guessing_however_often_it_is_right() -> None:
    labels = np.array([0] * 360 + [1, 2, 3] * 13 + [1])
    warning = chance_warning(outcome(np.zeros(400, dtype=int), labels), CLASSES)
    assert warning is not None and "90.0% right, balanced over classes 25.0%, chance 25.0%" in warning


def test_a_permuted_class_order_is_suspected_by_name() -> None:
    labels = np.arange(400) % 4
    warning = chance_warning(outcome((labels + 1) % 4, labels), CLASSES)
    assert warning is not None
    assert "100% are right: the class order is probably wrong (set `classes`)" in warning


def test_regression_no_better_than_the_mean() -> None:
    y = np.random.default_rng(0).normal(size=(50, 1))
    assert chance_warning(Outcome(y + 0.1, y, y[:, 0] ** 2, None), None) is None
    warning = chance_warning(Outcome(100 * y + 7, y, y[:, 0] ** 2, None), None)
    assert warning is not None and "explains none of the variation of its own train targets" in warning
