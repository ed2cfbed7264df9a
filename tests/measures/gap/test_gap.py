from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import gap as reference
from tolerances import ROUNDING

from audit.maths.resample import Bootstrap
from audit.maths.shares import wilson
from audit.measures.gap.measure import _errors, measure_fit, measure_gap
from audit.network.loss import CrossEntropy
from audit.network.records import Outcome

SAMPLED = 0.05  # of the interval's width: 4,000 draws against 4,000 draws of another generator


def outcome(n: int, seed: int, shift: float = 0.0, classes: int = 3) -> Outcome:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    scores = rng.normal(size=(n, classes)) + shift * np.eye(classes)[labels]
    f, y = torch.from_numpy(scores), torch.from_numpy(labels)
    wrong = (scores.argmax(1) != labels).astype(float)
    return Outcome(scores, labels, CrossEntropy().value(f, y).numpy(), wrong)


def test_losses_errors_and_intervals_agree_with_the_slow_way() -> None:
    train, test = outcome(60, 1, shift=2.0), outcome(45, 2, shift=1.0)
    gap = measure_gap(train, test, ["a", "b", "c"], Bootstrap(4000, 0))
    losses = [
        [reference.cross_entropy(f, y) for f, y in zip(part.scores.tolist(), part.labels.tolist(), strict=True)]
        for part in (train, test)
    ]
    assert gap.train_loss == pytest.approx(reference.mean(losses[0]), rel=ROUNDING)
    assert gap.test_loss == pytest.approx(reference.mean(losses[1]), rel=ROUNDING)
    assert gap.loss_gap == gap.test_loss - gap.train_loss
    assert gap.test_error == np.mean(test.scores.argmax(1) != test.labels)
    low, high = reference.percentile_interval(losses[0], losses[1], draws=4000)
    assert gap.loss_gap_ci95 == pytest.approx((low, high), abs=SAMPLED * (high - low))


def test_classes_add_up_to_the_whole() -> None:
    train, test = outcome(60, 1, 2.0), outcome(45, 2)
    gap = measure_gap(train, test, ["a", "b", "c"], Bootstrap(50, 0))
    weighted = sum(row.test_samples * row.test_loss for row in gap.per_class if row.test_loss is not None)
    assert weighted / 45 == pytest.approx(gap.test_loss, rel=ROUNDING)
    assert [row.train_samples for row in gap.per_class] == [20, 20, 20]


def test_a_class_that_is_missing_somewhere_says_so() -> None:
    train, test = outcome(60, 1), outcome(2, 2)
    rows = measure_gap(train, test, ["a", "b", "c"], Bootstrap(50, 0)).per_class
    assert (rows[2].loss_gap, rows[2].test_loss, rows[2].skipped) == (None, None, "no test samples of this class")


def test_a_perfect_fit_still_has_an_interval() -> None:
    perfect = outcome(100, 1, shift=100.0)
    gap = measure_gap(perfect, outcome(50, 2), ["a", "b", "c"], Bootstrap(200, 0))
    assert gap.train_error == 0.0
    assert gap.train_error_ci95 == wilson(0.0, 100)
    assert gap.train_error_ci95 is not None and gap.train_error_ci95[1] == pytest.approx(0.037, abs=1e-3)


def test_no_error_on_either_split_is_no_certainty() -> None:
    perfect, small = outcome(100, 1, shift=100.0), outcome(50, 2, shift=100.0)
    low, high = measure_gap(perfect, small, ["a", "b", "c"], Bootstrap(200, 0)).error_gap_ci95 or (0, 0)
    assert low == pytest.approx(-wilson(0.0, 100)[1])
    assert high == pytest.approx(wilson(0.0, 50)[1])


@given(st.integers(0, 60), st.integers(0, 80))
def test_intervals_of_errors_do_not_contradict_each_other(wrong: int, wrong_test: int) -> None:
    """The gap is no surer than the two errors that it is made of, and no less sure than both together."""
    flags = [np.arange(n) < count for n, count in ((60, wrong), (80, wrong_test))]
    scores, labels, loss = np.zeros((1, 2)), np.zeros(1), np.zeros(1)
    splits = [Outcome(scores, labels, loss, part.astype(np.float64)) for part in flags]
    found = _errors(*splits, Bootstrap(10, 0))
    (low, high), (low_test, high_test) = found["train_error_ci95"], found["test_error_ci95"]
    below, above = found["error_gap_ci95"]
    assert low_test - high - 1e-12 <= below <= found["error_gap"] - (found["test_error"] - low_test) + 1e-12
    assert found["error_gap"] + (high_test - found["test_error"]) - 1e-12 <= above <= high_test - low + 1e-12


def test_regression_has_rmse_and_r2_and_no_error() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 2))
    f = y + 0.5
    loss = ((f - y) ** 2).sum(1) / 2
    gap = measure_gap(Outcome(f, y, loss, None), Outcome(f, y, loss, None), None, Bootstrap(50, 0))
    assert (gap.train_error, gap.error_gap_ci95) == (None, None)
    assert gap.train_rmse == pytest.approx(0.5)
    expected = np.mean([1 - 40 * 0.25 / ((y[:, k] - y[:, k].mean()) ** 2).sum() for k in range(2)])
    assert gap.test_r2 == pytest.approx(expected, rel=ROUNDING)
    assert gap.test_rmse_guess == pytest.approx(y.var(0).mean() ** 0.5, rel=ROUNDING)
    assert gap.test_rmse_guess_ci95 is not None and gap.test_rmse_guess_ci95[0] < gap.test_rmse_guess
    assert gap.skipped == "error and accuracy do not exist for regression"


def test_a_constant_answer_is_the_mean_of_train_not_of_test() -> None:
    train, test = np.array([[0.0], [2.0]]), np.array([[3.0], [5.0]])
    pair = (Outcome(y + 1, y, np.full(2, 0.5), None) for y in (train, test))
    assert measure_gap(*pair, None, Bootstrap(5, 0)).test_rmse_guess == pytest.approx(((2**2 + 4**2) / 2) ** 0.5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(2, 40), m=st.integers(2, 40))
def test_swapping_the_splits_turns_the_gap_around(seed: int, n: int, m: int) -> None:
    one, two = outcome(n, seed), outcome(m, seed + 1)
    there, back = (measure_gap(*pair, None, Bootstrap(20, 0)) for pair in ((one, two), (two, one)))
    assert there.loss_gap == -back.loss_gap
    assert there.loss_gap_ci95 is not None and there.loss_gap_ci95[0] <= there.loss_gap_ci95[1]


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        parts = [rng.exponential(size=n) + mean for n, mean in ((200, 0.0), (100, 0.3))]
        train, test = (Outcome(part[:, None], part[:, None], part, None) for part in parts)
        low, high = measure_gap(train, test, None, Bootstrap(300, trial)).loss_gap_ci95 or (0, 0)
        hits += low <= 0.3 <= high
    assert 180 <= hits <= 199  # 95 % of 200 is 190, with a standard deviation of 3


def test_every_mean_of_a_regression_has_its_interval() -> None:
    """Against python's own loop over resamples, up to the noise of 400 draws."""
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(40, 2))
    outcome = Outcome(targets + rng.normal(size=(40, 2)) * 0.5, targets, np.zeros(40), None)
    fit = measure_fit(outcome, Bootstrap(2000, 0))
    rmses, r2s = [], []
    for _ in range(400):
        rows = rng.integers(40, size=40)
        errors, mine = (outcome.scores - targets)[rows] ** 2, targets[rows]
        rmses.append(np.sqrt(errors.mean()))
        r2s.append(np.mean(1 - errors.sum(0) / ((mine - mine.mean(0)) ** 2).sum(0)))
    for found, draws in ((fit.rmse_ci95, rmses), (fit.r2_ci95, r2s)):
        assert found is not None
        assert found == pytest.approx(np.percentile(draws, [2.5, 97.5]), abs=0.2 * np.ptp(draws))
        assert found[0] < np.median(draws) < found[1]


def test_a_target_that_never_varies_has_no_r2_and_no_interval() -> None:
    outcome = Outcome(np.ones((5, 1)), np.zeros((5, 1)), np.zeros(5), None)
    fit = measure_fit(outcome, Bootstrap(50, 0))
    assert (fit.r2, fit.r2_ci95, fit.rmse, fit.rmse_ci95) == (None, None, 1.0, (1.0, 1.0))


def test_differences_of_rounding_size_are_none():
    """A constant model: equal losses, whose sums over splits of other sizes differ in the last bits."""
    splits = [Outcome(np.zeros((n, 10)), np.arange(n) % 10, np.full(n, np.log(10)), np.ones(n)) for n in (1203, 594)]
    gap = measure_gap(*splits, [str(digit) for digit in range(10)], Bootstrap(200, 0))
    assert (gap.loss_gap, gap.loss_gap_ci95) == (0.0, (0.0, 0.0))
    assert all(row.loss_gap == 0.0 for row in gap.per_class)
