"""Errors of a regression on test beside those on train: the slow way, and what is kept for the picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import calibration as reference
from tolerances import ROUNDING

from audit.maths.resample import Bootstrap
from audit.maths.shares import wilson
from audit.measures.calibration.block import Calibration
from audit.measures.calibration.measure import POINTS, REGRESSION, evenly_spread, measure_calibration
from audit.network.records import Outcome


def regression(n: int, seed: int, spread: float, outputs: int = 1) -> Outcome:
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=(n, outputs))
    scores = targets + spread * rng.normal(size=(n, outputs)) + 0.1
    return Outcome(scores, targets, ((scores - targets) ** 2).sum(1) / 2, None)


def measured(n: int = 130, outputs: int = 1, spread: float = 0.8) -> tuple[Outcome, Outcome, Calibration]:
    train, test = regression(90, 1, 0.5, outputs), regression(n, 2, spread, outputs)
    return train, test, measure_calibration(train, test, Bootstrap(2000, 0))


@pytest.mark.parametrize("outputs", [1, 3])
def test_coverage_and_bins_agree_with_the_slow_way(outputs: int) -> None:
    train, test, found = measured(outputs=outputs)
    assert len(found.outputs) == outputs
    for place, own in enumerate(found.outputs):
        there, here = ((part.scores - part.targets)[:, place].tolist() for part in (train, test))
        rmse = float(np.sqrt(np.mean(np.square(there))))
        held = [reference.size_that_holds(there, share) for share in (0.9, 0.95)]
        assert [part.limit for part in own.coverage] == pytest.approx([rmse, 2 * rmse, *held], rel=ROUNDING)
        for part in own.coverage:
            limit = part.limit * (1 + 1e-9)
            assert part.train_within == reference.within(there, limit)
            assert part.test_within == reference.within(here, limit)
            assert part.test_within_ci95 == wilson(part.test_within, len(here))
            assert part.difference == part.test_within - part.train_within
        cut = reference.bins(test.scores[:, place].tolist())
        assert [bin.samples for bin in own.bins] == [len(rows) for rows in cut]
        assert [bin.residual for bin in own.bins] == pytest.approx([np.mean([here[i] for i in rows]) for rows in cut])
        assert own.test_bias == pytest.approx(np.mean(here)) and own.train_bias == pytest.approx(np.mean(there))


def test_intervals_of_bins_are_those_of_python_s_own_resamples() -> None:
    _, test, found = measured()
    rng, errors = np.random.default_rng(5), (test.scores - test.targets)[:, 0]
    for bin, rows in zip(found.outputs[0].bins, reference.bins(test.scores[:, 0].tolist()), strict=True):
        means = [errors[rng.choice(rows, len(rows))].mean() for _ in range(1000)]
        low, high = np.percentile(means, [2.5, 97.5])
        assert bin.residual_ci95 == pytest.approx((low, high), abs=0.15 * (high - low))


def test_larger_errors_on_test_are_seen_and_alike_ones_are_not() -> None:
    for spread, worse in ((1.0, True), (0.5, False)):
        _, _, found = measured(400, spread=spread)
        last = found.outputs[0].coverage[-1]
        assert last.id == "share-95" and last.difference_ci95 is not None
        assert (last.difference_ci95[1] < 0) == worse


@pytest.mark.parametrize(("n", "outputs"), [(1, 1), (30, 1), (5000, 1), (900, 2), (900, 40)])
def test_what_is_kept_to_be_drawn_stays_small(n: int, outputs: int) -> None:
    _, _, found = measured(n, outputs)
    assert len(found.outputs) + found.outputs_left_out == outputs and len(found.outputs) <= 6
    assert sum(len(own.predictions) for own in found.outputs) <= POINTS
    assert all(len(own.predictions) == len(own.residuals) and len(own.bins) <= 10 for own in found.outputs)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 400), most=st.integers(1, 50), seed=st.integers(0, 99))
def test_the_same_samples_are_drawn_whatever_their_order(n: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, e = rng.integers(0, 9, n) / 8, rng.normal(size=n)
    order = rng.permutation(n)
    one, other = evenly_spread(f, e, most), evenly_spread(f[order], e[order], most)
    assert np.array_equal(f[one], f[order][other]) and np.array_equal(e[one], e[order][other])
    assert len(one) == min(n, most) and (np.diff(f[one]) >= 0).all()


def test_a_regression_has_no_confidence_and_classes_have_no_residuals() -> None:
    _, _, found = measured()
    assert (found.test, found.train, found.scaling, found.skipped) == (None, None, None, REGRESSION)


def test_a_perfect_fit_is_exceeded_by_any_error() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 1))
    perfect, off = Outcome(y, y, np.zeros(40), None), Outcome(y + 0.1, y, np.zeros(40), None)
    (own,) = measure_calibration(perfect, off, Bootstrap(50, 0)).outputs
    assert [(part.limit, part.train_within, part.test_within) for part in own.coverage] == [(0.0, 1.0, 0.0)] * 4
