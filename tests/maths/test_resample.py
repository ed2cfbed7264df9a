"""Bootstrap means: the same as drawing indices and averaging, whether the counts are kept or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolerances import BY_HAND, ROUNDING

from audit.maths import resample
from audit.maths.resample import Bootstrap, Resampled, interval, resampled_means


@given(n=st.integers(1, 60), draws=st.integers(0, 50), seed=st.integers(0, 9))
def test_means_are_those_of_drawn_samples(n, draws, seed):
    columns = np.random.default_rng(n).normal(size=(n, 3))
    drawn = np.random.default_rng(seed).integers(n, size=(draws, n))
    assert resampled_means(columns, draws, seed) == pytest.approx(columns[drawn].mean(1), rel=ROUNDING, abs=1e-13)


@pytest.mark.parametrize("keep", [70, 69, 0])
def test_counts_are_the_same_whether_they_are_kept_or_not(keep, monkeypatch):
    columns = np.random.default_rng(0).normal(size=(70, 2))
    drawn = resampled_means(columns, 40, 5)
    monkeypatch.setattr(resample, "CACHED", 300)
    bootstrap = Bootstrap(40, 5, {0: keep, 3: keep})
    for _ in range(2):
        assert bootstrap.means(columns) == pytest.approx(drawn, rel=BY_HAND)
        assert bootstrap.means(columns, stream=3) == pytest.approx(resampled_means(columns, 40, 8), rel=BY_HAND)
    assert bootstrap.bytes == 2 * 40 * keep
    assert bootstrap.means(columns, stream=4) == pytest.approx(resampled_means(columns, 40, 9), rel=BY_HAND)


def test_counts_beyond_their_limit_are_not_kept(monkeypatch):
    monkeypatch.setattr(resample, "COUNTS", 100)
    assert [Bootstrap(10, 0, {0: keep}).bytes for keep in (10, 11)] == [100, 0]


def test_two_tables_of_the_same_samples_share_their_draws():
    x = np.random.default_rng(1).normal(size=50)
    both = Resampled({"x": x, "twice": 2 * x}, Bootstrap(30, 0))
    alone = Resampled({"x": x}, Bootstrap(30, 0))
    assert both.ci95(lambda value: value, "x") == pytest.approx(alone.ci95(lambda value: value, "x"), rel=ROUNDING)
    assert both.ci95(lambda one, two: two - 2 * one, "x", "twice") == pytest.approx((0, 0), abs=1e-14)


def test_no_draw_has_no_interval():
    assert interval(resampled_means(np.ones((4, 1)), 0, 0)[:, 0]) is None


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_random_groups_of_many_samples_vary_as_the_samples_do(draw, monkeypatch):
    """Sorted samples, as those of a split that is stored class by class, and a column that few of them have."""
    monkeypatch.setattr(resample, "RESAMPLED", 500)
    rng = np.random.default_rng(3)
    columns = np.stack([np.sort(getattr(rng, draw)(size=3130)), np.arange(3130) < 40], 1)
    drawn = resampled_means(columns, 2000, seed=1)
    assert drawn.mean(0) == pytest.approx(columns.mean(0), abs=4 * columns.std(0).max() / np.sqrt(2000 * 3130))
    assert drawn.std(0) == pytest.approx(columns.std(0) / np.sqrt(3130), rel=0.12)
    together = resampled_means(columns[:, [1, 0]], 2000, seed=1)
    assert together == pytest.approx(drawn[:, [1, 0]], rel=ROUNDING), "all columns share their draws"
    assert resampled_means(np.ones((3130, 1)), 5, 0) == pytest.approx(np.ones((5, 1)), rel=BY_HAND)


def test_intervals_from_random_groups_cover_the_mean(monkeypatch):
    monkeypatch.setattr(resample, "RESAMPLED", 250)
    rng = np.random.default_rng(0)
    found = [interval(resampled_means(rng.exponential(size=(1020, 1)), 400, seed)[:, 0]) for seed in range(400)]
    assert 0.92 <= np.mean([low <= 1 <= high for low, high in found]) <= 0.98


def test_few_samples_are_drawn_one_by_one():
    columns = np.random.default_rng(0).normal(size=(resample.RESAMPLED, 1))
    drawn = np.random.default_rng(7).integers(len(columns), size=(3, len(columns)))
    assert resampled_means(columns, 3, 7) == pytest.approx(columns[drawn].mean(1), rel=ROUNDING)
