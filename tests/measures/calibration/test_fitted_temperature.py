"""The temperature: the slow way, its limits, and an interval that holds it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from calibration_cases import measured, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from references import calibration as reference
from tolerances import EXACT, ROUNDING, SOLVED

from audit.maths.resample import Bootstrap
from audit.measures.calibration.confidence import Answers
from audit.measures.calibration.measure import NO_HINT, NO_MISTAKE, OPEN, answers_of, fit_temperature, slopes_at
from audit.network.loss import CrossEntropy
from audit.network.records import Outcome

FOUND = 1e-6  # a minimum by grid is flat: its place is known to the square root of its value's digits


@pytest.mark.parametrize("classes", [2, 4])
def test_temperature_and_loss_agree_with_the_slow_way(classes: int) -> None:
    test = outcome(60, 5, 2.0, classes)
    found = measured(test).scaling
    assert found is not None and found.temperature is not None
    rows, labels = test.scores.tolist(), test.labels.tolist()
    assert found.temperature == pytest.approx(reference.temperature(rows, labels, 0.01, 100.0), rel=FOUND)
    assert found.loss == pytest.approx(reference.loss(rows, labels, found.temperature), rel=EXACT)
    c = [max(reference.softmax([f / found.temperature for f in row])) for row in rows]
    right = (1 - test.wrong).tolist()  # type: ignore[operator]
    assert found.ece == pytest.approx(reference.ece(c, right, reference.bins(c)), rel=SOLVED)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 500), factor=st.floats(1e-3, 1e3))
def test_louder_scores_need_a_temperature_that_much_higher(seed: int, factor: float) -> None:
    test = outcome(50, seed, 1.5)
    loud = Outcome(factor * test.scores, test.labels, test.loss, test.wrong)
    one, other = (fit_temperature(answers_of(each), Bootstrap(20, 0)) for each in (test, loud))
    assert one.skipped == other.skipped
    if one.temperature is not None and one.temperature_ci95 is not None:
        assert other.temperature == pytest.approx(factor * one.temperature, rel=SOLVED)
        assert other.temperature_ci95 == pytest.approx([factor * end for end in one.temperature_ci95], rel=SOLVED)
        assert (other.loss, other.ece) == (pytest.approx(one.loss), pytest.approx(one.ece))


def test_derivatives_are_those_of_the_loss() -> None:
    answers = answers_of(outcome(20, 6))
    m = answers.f - answers.f[np.arange(20), answers.y][:, None]
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    loss = CrossEntropy().value(beta * torch.from_numpy(answers.f), torch.from_numpy(answers.y)).sum()
    (first,) = torch.autograd.grad(loss, beta, create_graph=True)
    (second,) = torch.autograd.grad(first, beta)
    found = slopes_at(m, 0.7)
    expected = [float(part.detach()) for part in (loss, first, second)]
    assert [found.loss.sum(), found.first.sum(), found.second.sum()] == pytest.approx(expected, rel=ROUNDING)


def wrong_where(f: np.ndarray, y: np.ndarray) -> Answers:
    return Answers(f, y, (f.argmax(1) == y).astype(float))


@pytest.mark.parametrize(
    ("f", "y", "why"),
    [
        (np.eye(3)[[0, 1, 2] * 10], np.array([0, 1, 2] * 10), NO_MISTAKE),
        (np.eye(3)[[0, 1, 2] * 10], np.array([1, 2, 0] * 10), NO_HINT),
        (np.zeros((30, 3)), np.array([0, 1, 2] * 10), NO_HINT),
        (np.array([[1e-14, 0.0]] + [[5.0, 0.0]] * 29), np.array([1] + [0] * 29), OPEN),
    ],
)
def test_where_there_is_none_the_reason_is_given(f: np.ndarray, y: np.ndarray, why: str) -> None:
    found = fit_temperature(wrong_where(f, y), Bootstrap(50, 0))
    assert found.skipped == why
    assert (found.temperature, found.temperature_ci95, found.loss, found.ece) == (None, None, None, None)


def test_extreme_scores_stay_finite() -> None:
    test = outcome(60, 7)
    plain = measured(test).scaling
    for factor in (1e-200, 1e150):
        scaling = measured(Outcome(factor * test.scores, test.labels, test.loss, test.wrong)).scaling
        assert plain is not None and plain.temperature is not None and scaling is not None
        assert scaling.temperature == pytest.approx(factor * plain.temperature, rel=SOLVED)
        assert (scaling.loss, scaling.ece) == (pytest.approx(plain.loss), pytest.approx(plain.ece))


@pytest.mark.parametrize(("n", "sharp"), [(60, 3.0), (60, 8.0), (300, 3.0)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(n: int, sharp: float) -> None:
    hits = found = 0
    for trial in range(200):
        scaling = fit_temperature(answers_of(outcome(n, 5000 + trial, 1.7, sharp=sharp)), Bootstrap(10, trial))
        if scaling.temperature_ci95 is not None:
            found += 1
            hits += scaling.temperature_ci95[0] <= 1.7 <= scaling.temperature_ci95[1]
    assert found > 190 and hits >= 0.91 * found
