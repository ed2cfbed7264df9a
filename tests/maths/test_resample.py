"""Bootstrap means: the same as drawing indices and averaging, whether the counts are kept or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.maths import resample
from audit.maths.resample import Resampled, interval, resampled_means


@given(n=st.integers(1, 60), draws=st.integers(0, 50), seed=st.integers(0, 9))
def test_means_are_those_of_drawn_samples(n, draws, seed):
    columns = np.random.default_rng(n).normal(size=(n, 3))
    drawn = np.random.default_rng(seed).integers(n, size=(draws, n))
    assert resampled_means(columns, draws, seed) == pytest.approx(columns[drawn].mean(1), rel=1e-12, abs=1e-13)


def test_counts_that_are_not_kept_are_the_same(monkeypatch):
    columns = np.random.default_rng(0).normal(size=(70, 2))
    kept = resampled_means(columns, 40, 5)
    monkeypatch.setattr(resample, "KEPT", 0)
    monkeypatch.setattr(resample, "DRAWN", 300)
    assert resampled_means(columns, 40, 5) == pytest.approx(kept, rel=1e-13)


def test_two_tables_of_the_same_samples_share_their_draws():
    x = np.random.default_rng(1).normal(size=50)
    both = Resampled({"x": x, "twice": 2 * x}, 30, 0)
    alone = Resampled({"x": x}, 30, 0)
    assert both.ci95(lambda value: value, "x") == pytest.approx(alone.ci95(lambda value: value, "x"), rel=1e-12)
    assert both.ci95(lambda one, two: two - 2 * one, "x", "twice") == pytest.approx((0, 0), abs=1e-14)


def test_no_draw_has_no_interval():
    assert interval(resampled_means(np.ones((4, 1)), 0, 0)[:, 0]) is None
