"""Means and shares over answers that come in clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import CANCELS, ROUNDING

from audit.maths.resample import Bootstrap, cluster_means, cluster_share, cluster_sums
from audit.maths.shares import wilson


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=12), seed=st.integers(0, 1000))
def test_every_draw_is_a_mean_over_the_answers_of_drawn_samples(sizes: list[int], seed: int) -> None:
    sample = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(seed).normal(size=(len(sample), 2))
    drawn = cluster_means(values, sample, Bootstrap(20, seed))
    assert drawn.shape == (20, 2)
    low = min(values[sample == i].mean(0)[0] for i in range(len(sizes)))
    high = max(values[sample == i].mean(0)[0] for i in range(len(sizes)))
    assert (drawn[:, 0] >= low - ROUNDING).all() and (drawn[:, 0] <= high + ROUNDING).all()
    np.testing.assert_allclose(cluster_sums(values, sample, len(sizes)).sum(0), values.sum(0), rtol=0, atol=CANCELS)


def test_samples_with_one_answer_each_are_drawn_as_samples() -> None:
    values, bootstrap = np.random.default_rng(0).normal(size=(30, 3)), Bootstrap(50, 1)
    np.testing.assert_allclose(cluster_means(values, np.arange(30), bootstrap), bootstrap.means(values), rtol=ROUNDING)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_equal_answers_everywhere_are_as_many_as_samples(share: float) -> None:
    asked = np.full(25, 40.0)
    assert cluster_share(share * asked, asked, Bootstrap(50, 0)) == wilson(share, 25)


def test_intervals_hold_the_share_where_samples_differ_from_each_other() -> None:
    """Samples have their own rate, Beta(2, 2), and up to 30 answers: positions would be far too sure."""
    rng, held, naive, tries = np.random.default_rng(0), 0, 0, 300
    for _ in range(tries):
        asked = rng.integers(10, 31, 60).astype(float)
        hits = rng.binomial(asked.astype(int), rng.beta(2, 2, 60)).astype(float)
        low, high = cluster_share(hits, asked, Bootstrap(200, int(rng.integers(1 << 30))))
        held += low <= 0.5 <= high
        ends = wilson(float(hits.sum() / asked.sum()), int(asked.sum()))
        naive += ends[0] <= 0.5 <= ends[1]
    assert 0.90 <= held / tries <= 0.98
    assert naive / tries < 0.75  # or this test could not tell the two apart
