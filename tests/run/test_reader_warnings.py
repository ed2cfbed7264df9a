from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.data.dataset import Data, Split
from audit.measures.gap.measure import r_squared
from audit.network.records import Outcome
from audit.run.reader_warnings import chance_warning, pixel_warning, probability_warning
from audit.settings import Settings

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


def test_regression_no_better_than_the_mean() -> None:
    y = np.random.default_rng(0).normal(size=(50, 1))
    assert chance_warning(Outcome(y + 0.1, y, y[:, 0] ** 2, None), None) is None
    warning = chance_warning(Outcome(100 * y + 7, y, y[:, 0] ** 2, None), None)
    assert warning is not None and "explains none of the variation of its own train targets" in warning


@pytest.mark.parametrize("value", [3.5, 3.3, 0.0])
def test_targets_that_never_vary_are_named(value: float) -> None:
    y = np.full((50, 1), value)
    scores = y + np.random.default_rng(0).normal(size=(50, 1))
    same = Outcome(scores, y, ((scores - y) ** 2)[:, 0], None)
    assert r_squared(same) is None
    warning = chance_warning(same, None)
    assert warning is not None and f"All 50 train targets are the same number, {value:g}, so a constant" in warning


def test_a_hidden_probability_is_not_taken_for_a_score_in_silence() -> None:
    p = np.random.default_rng(0).random((50, 1))
    labels = (p[:, 0] > 0.5).astype(int)
    warning = probability_warning(Outcome(p, labels, np.zeros(50), np.zeros(50)))
    assert warning is not None and "probably a probability whose final layer was not recognised" in warning
    assert probability_warning(Outcome(p - 0.5, labels, np.zeros(50), np.zeros(50))) is None
    assert probability_warning(Outcome(p, p, np.zeros(50), None)) is None  # targets between 0 and 1 are no fault
    assert probability_warning(Outcome(np.hstack([p, p]), labels, np.zeros(50), np.zeros(50))) is None


def pixels(x: np.ndarray, **knobs: object) -> str | None:
    split = Split(x, np.zeros(len(x)), len(x))
    data = Data(split, split, path=Path("folder"), layout="npz", sha256="", classes=None)
    return pixel_warning(data, Settings(**knobs))  # type: ignore[arg-type]


@given(st.integers(0, 100), st.sampled_from([(64,), (8, 8), (3, 32, 32)]))
def test_pixels_as_they_are_stored_are_called_so(seed: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(seed).integers(0, 256, (20, *shape)).astype(np.float32)
    warning = pixels(x)
    assert warning is not None and "whole numbers from 0 to 255, and are fed as they are" in warning
    assert "say --scale 0.00392157; if it takes them as they are, say --scale 1." in warning
    assert pixels(x, scale=1.0) is None and pixels(x, mean=(0.5,)) is None
    for other in (x / 255, x - 128, x + 200, x.astype(np.int64), x + 0.5, x.reshape(20, -1)[:, :60]):
        assert pixels(other) is None
