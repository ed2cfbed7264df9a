"""Bootstrap means: the same as drawing indices and averaging, whether the counts are kept or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.maths import resample
from audit.maths.resample import Bootstrap, Resampled, interval, resampled_means


@given(n=st.integers(1, 60), draws=st.integers(0, 50), seed=st.integers(0, 9))
def test_means_are_those_of_drawn_samples(n, draws, seed):
    columns = np.random.default_rng(n).normal(size=(n, 3))
    drawn = np.random.default_rng(seed).integers(n, size=(draws, n))
    assert resampled_means(columns, draws, seed) == pytest.approx(columns[drawn].mean(1), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("keep", [70, 69, 0])
def test_counts_are_the_same_whether_they_are_kept_or_not(keep, monkeypatch):
    columns = np.random.default_rng(0).normal(size=(70, 2))
    drawn = resampled_means(columns, 40, 5)
    monkeypatch.setattr(resample, "CACHED", 300)
    bootstrap = Bootstrap(40, 5, {0: keep, 3: keep})
    for _ in range(2):
        assert bootstrap.means(columns) == pytest.approx(drawn, rel=1e-13)
        assert bootstrap.means(columns, stream=3) == pytest.approx(resampled_means(columns, 40, 8), rel=1e-13)
    assert bootstrap.bytes == 2 * 40 * keep
    assert bootstrap.means(columns, stream=4) == pytest.approx(resampled_means(columns, 40, 9), rel=1e-13)


def test_counts_beyond_their_limit_are_not_kept(monkeypatch):
    monkeypatch.setattr(resample, "COUNTS", 100)
    assert [Bootstrap(10, 0, {0: keep}).bytes for keep in (10, 11)] == [100, 0]


def test_two_tables_of_the_same_samples_share_their_draws():
    x = np.random.default_rng(1).normal(size=50)
    both = Resampled({"x": x, "twice": 2 * x}, Bootstrap(30, 0))
    alone = Resampled({"x": x}, Bootstrap(30, 0))
    assert both.ci95(lambda value: value, "x") == pytest.approx(alone.ci95(lambda value: value, "x"), rel=1e-12)
    assert both.ci95(lambda one, two: two - 2 * one, "x", "twice") == pytest.approx((0, 0), abs=1e-14)


def test_no_draw_has_no_interval():
    assert interval(resampled_means(np.ones((4, 1)), 0, 0)[:, 0]) is None
