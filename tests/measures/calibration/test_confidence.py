"""Confidence against accuracy: the slow way, cases solved by hand, and intervals that hold what they promise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from calibration_cases import measured, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from references import calibration as reference
from tolerances import EXACT

from audit.maths.resample import resampled_means
from audit.maths.shares import wilson
from audit.measures.calibration.block import Confidence
from audit.measures.calibration.confidence import (
    Reliability,
    calibration_error,
    equal_count_bins,
    overconfidence_interval,
)
from audit.measures.calibration.measure import answers_of
from audit.network.records import Outcome

SAMPLED = 0.1  # of the range: 2,000 draws against 1,000 of another generator


def on_test(test: Outcome, **changes: object) -> Confidence:
    found = measured(test, **changes).test  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("n", [7, 90, 260])
def test_every_number_agrees_with_the_slow_way(classes: int, n: int) -> None:
    train, test = outcome(120, 1, 1.0, classes), outcome(n, 2, 2.0, classes)
    found = on_test(test, train=train, draws=2000)
    p = [reference.softmax(row) for row in test.scores.tolist()]
    c, r = [max(row) for row in p], (1 - test.wrong).tolist()  # type: ignore[operator]
    cut = reference.bins(c)
    assert [bin.samples for bin in found.bins] == [len(own) for own in cut]
    for bin, own in zip(found.bins, cut, strict=True):
        assert bin.confidence == pytest.approx(np.mean([c[i] for i in own]), rel=EXACT)
        assert bin.accuracy == pytest.approx(np.mean([r[i] for i in own]), rel=EXACT)
        assert bin.accuracy_ci95 == wilson(bin.accuracy, len(own))
    assert found.ece == pytest.approx(reference.ece(c, r, cut), rel=EXACT)
    assert found.overconfidence == pytest.approx(np.mean(c) - np.mean(r), abs=EXACT)
    assert found.brier == pytest.approx(reference.brier(p, test.labels.tolist()), rel=EXACT)
    shares = [float(np.mean(train.labels == k)) for k in range(len(p[0]))]
    guess = reference.brier([shares] * n, test.labels.tolist())
    assert found.brier_guess == pytest.approx(guess, rel=EXACT)
    assert found.brier_skill == pytest.approx(1 - found.brier / guess, rel=EXACT)


def test_chance_alone_is_what_simulating_calibrated_models_gives() -> None:
    test = outcome(120, 3)
    found = on_test(test, draws=2000)
    c = [max(reference.softmax(row)) for row in test.scores.tolist()]
    drawn = reference.ece_if_calibrated(c, reference.bins(c), 1000)
    spread = drawn[-25] - drawn[25]
    assert found.ece_if_calibrated == pytest.approx(np.mean(drawn), abs=SAMPLED * spread)
    assert found.ece_if_calibrated_ci95 == pytest.approx((drawn[25], drawn[-25]), abs=SAMPLED * spread)


def test_solved_by_hand() -> None:
    """Forty answers with confidence ¾: thirty right, ten wrong. Then twenty of each."""
    f = np.full((40, 1), np.log(3.0))
    labels = np.array([1] * 30 + [0] * 10)
    found = on_test(Outcome(f, labels, np.zeros(40), 1.0 - labels))
    assert len(found.bins) == 1 and found.worst_bin is None
    assert (found.overconfidence, found.ece) == (pytest.approx(0, abs=EXACT), pytest.approx(0, abs=EXACT))
    assert found.brier == pytest.approx(2 * (0.75 / 16 + 0.25 * 9 / 16), rel=EXACT)  # both classes are counted
    half = np.array([1] * 20 + [0] * 20)
    found = on_test(Outcome(f, half, np.zeros(40), 1.0 - half))
    assert (found.overconfidence, found.ece) == (pytest.approx(0.25), pytest.approx(0.25))
    assert found.worst_bin == 0 and found.ece_ci95 is not None and found.ece_ci95[0] > 0


def test_one_score_and_the_same_as_two_are_one_model() -> None:
    one = outcome(150, 4, 1.5, classes=2)
    two = Outcome(np.concatenate([-one.scores / 2, one.scores / 2], 1), one.labels, one.loss, one.wrong)
    mine, other = on_test(one, train=one), on_test(two, train=two)
    for name in ("confidence", "overconfidence_ci95", "ece", "ece_ci95", "brier", "brier_guess", "brier_skill_ci95"):
        assert getattr(mine, name) == pytest.approx(getattr(other, name), rel=EXACT), name


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.sampled_from([0.25, 0.5, 0.75, 0.875, 1.0]), min_size=1, max_size=300), seed=st.integers())
def test_bins_depend_on_no_order_and_split_no_tie(values: list[float], seed: int) -> None:
    found = equal_count_bins(np.array(values))
    order = np.random.default_rng(abs(seed)).permutation(len(values))
    assert np.array_equal(equal_count_bins(np.array(values)[order]), found[order])
    assert set(found.tolist()) == set(range(found.max() + 1))
    for value in set(values):
        assert len({own for own, other in zip(found.tolist(), values, strict=True) if other == value}) == 1
    ordered = sorted(zip(values, found.tolist(), strict=True))
    assert all(before[1] <= after[1] for before, after in pairwise(ordered))


@given(n=st.integers(1, 500))
def test_bins_of_different_values_hold_equally_many(n: int) -> None:
    counts = np.bincount(equal_count_bins(np.random.default_rng(n).random(n)))
    assert counts.max() - counts.min() <= 1
    assert len(counts) == min(10, max(1, n // 20))


def test_a_model_without_mistakes_is_not_surely_less_sure_than_it_could_be() -> None:
    """Fifty right answers with confidence 0.98: one in fifty may well be wrong. A bootstrap alone would not know."""
    f = np.full((50, 1), np.log(49.0))
    found = on_test(Outcome(f, np.ones(50, dtype=int), np.zeros(50), np.zeros(50)))
    assert found.overconfidence == pytest.approx(-0.02)
    assert found.overconfidence_ci95 is not None and found.overconfidence_ci95[0] < 0 < found.overconfidence_ci95[1]
    assert found.ece_ci95 is not None and found.ece_ci95[0] == 0


def test_where_all_samples_are_of_one_class_there_is_no_guess_to_beat() -> None:
    f = np.array([[1.0, 0.0]] * 30)
    same = Outcome(f, np.zeros(30, dtype=int), np.zeros(30), np.zeros(30))
    found = on_test(same, train=same)
    assert (found.brier_guess, found.brier_skill, found.brier_skill_ci95) == (0.0, None, None)


@pytest.mark.parametrize("n", [40, 200])
@pytest.mark.parametrize("too_sure", [1.0, 1.8])
def test_intervals_hold_the_truth_about_as_often_as_they_say(n: int, too_sure: float) -> None:
    """Of 200 made-up test splits; the truth is that of the very confidences drawn."""
    held = {"over": 0, "ece": 0, "calibrated": 0}
    for trial in range(200):
        test = outcome(n, 1000 + trial, too_sure, sharp=4.0)
        found = Reliability.of(answers_of(test))
        drawn = resampled_means(found.excess, 200, trial)
        p = answers_of(Outcome(test.scores / too_sure, test.labels, test.loss, test.wrong)).c
        true = Reliability(found.c, p, found.bins).excess.mean(0)
        low, high = overconfidence_interval(found, drawn) or (0.0, 0.0)
        error = calibration_error(found, drawn, trial)
        held["over"] += low <= true.sum() <= high
        held["ece"] += error.ci95[0] <= np.abs(true).sum() <= error.ci95[1]
        held["calibrated"] += error.ci95[0] == 0
    assert min(held["over"], held["ece"]) >= 182  # 95 % of 200 is 190, with a standard deviation of 3
    assert held["calibrated"] >= 185 if too_sure == 1 else held["calibrated"] < 170
