"""The statistics of a comparison against slow, obviously right versions of themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from tolerances import SOLVED

from audit.maths import intervals as means
from audit.maths.intervals import (
    exact_bounds,
    hall_bounds,
    halves_bounds,
    mcnemar,
    mean_interval,
    score_bounds,
    share_interval,
    student_bounds,
    student_quantile,
)
from audit.maths.shares import difference_interval

QUANTILE = 1e-5  # accuracy of the summed density
COUNTS = st.tuples(st.integers(0, 25), st.integers(0, 25), st.integers(0, 200)).filter(lambda c: sum(c) > 1)


def flags(b: int, c: int, agreeing: int) -> tuple[np.ndarray, np.ndarray]:
    """Old and new mistakes with b that only the new model makes and c that only the old one makes."""
    old = np.array([0.0] * b + [1.0] * c + [0.0, 1.0] * (agreeing // 2) + [0.0] * (agreeing % 2))
    new = np.array([1.0] * b + [0.0] * c + [0.0, 1.0] * (agreeing // 2) + [0.0] * (agreeing % 2))
    return old, new


@given(COUNTS)
def test_mcnemar_and_its_interval_are_scipys(counts):
    b, c, agreeing = counts
    assume(b + c > 0)
    test = stats.binomtest(b, b + c)
    ends = test.proportion_ci(method="exact")
    n = b + c + agreeing
    assert mcnemar(b, c) == pytest.approx(test.pvalue, rel=SOLVED)
    expected = [(2 * end - 1) * (b + c) / n for end in (ends.low, ends.high)]
    assert exact_bounds(b, c, n) == pytest.approx(expected, abs=1e-9)


def naive_score(b: int, c: int, n: int, delta: float) -> float:
    """Tango's statistic, its nuisance share found by maximising the likelihood of the trinomial counts."""

    def minus_log_likelihood(q: float) -> float:
        shares = (q + delta, q, 1 - 2 * q - delta)
        return -sum(count * math.log(share) for count, share in zip((b, c, n - b - c), shares, strict=True) if count)

    low, high = max(0.0, -delta), (1 - delta) / 2
    q = optimize.minimize_scalar(
        minus_log_likelihood, bounds=(low + 1e-13, high - 1e-13), method="bounded", options={"xatol": 1e-12}
    ).x
    return (b - c - n * delta) / math.sqrt(n * (2 * q + delta * (1 - delta)))


@given(st.integers(1, 20), st.integers(1, 20), st.integers(5, 100))
@settings(max_examples=40)
def test_the_score_interval_ends_where_the_likelihood_says(b, c, agreeing):
    n = b + c + agreeing
    low, high = score_bounds(b, c, n)
    assert naive_score(b, c, n, low) == pytest.approx(1.959964, abs=1e-3)
    assert naive_score(b, c, n, high) == pytest.approx(-1.959964, abs=1e-3)


@settings(deadline=None)  # by halving, in plain Python
@given(COUNTS)
def test_the_interval_of_errors_excludes_zero_only_where_the_exact_test_rejects(counts):
    b, c, _ = counts
    low, high = share_interval(*flags(*counts))
    assert (low > 0 or high < 0) <= (mcnemar(b, c) <= 0.05)
    assert low <= (b - c) / sum(counts) <= high
    mirrored = share_interval(*reversed(flags(*counts)))
    assert mirrored == pytest.approx((-high, -low), abs=1e-9)


def test_the_exact_test_decides_about_zero():
    """Where the exact test rejects, so does the score interval, which is the less strict one at zero."""
    for b, c in itertools.product(range(20), repeat=2):
        if b + c:
            low, high = share_interval(*flags(b, c, 300))
            assert (low > 0 or high < 0) == (mcnemar(b, c) <= 0.05), (b, c)


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=9, unique=True))
@settings(max_examples=25)
def test_halves_are_the_permutation_test_turned_round(values):
    """Brute force: a shift is inside where exchanging the models' losses in all 2ⁿ ways does not make it rare."""
    d = np.array(values)
    assume(np.ptp(d) > 1e-3)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(d))))
    subsets = np.array([(d * (s > 0)).sum() / (s > 0).sum() for s in signs if (s > 0).any()])
    low, high = halves_bounds(d)
    slack = 0.01  # 3999 random halves in place of all: three standard errors of a share of 2.5 %

    def p_value(shift: float) -> float:
        moved = np.abs(signs @ (d - shift))
        return float((moved >= abs((d - shift).sum()) - 1e-12).mean())

    for end in (low, high):
        outwards = end + (end - d.mean()) * 1e-6
        assert p_value(outwards) <= 0.05 + 2 * slack + 2 / len(signs)
    loose, tie = slack + 2 / len(signs), 1e-12  # equal values make equal means: those at a bound are on both sides
    for beyond, at_least in ((subsets - low, low - subsets), (high - subsets, subsets - high)):
        assert (beyond < -tie).mean() <= 0.025 + loose
        assert (at_least >= -tie).mean() >= 0.025 - loose


@given(st.floats(1, 500), st.sampled_from([0.025, 0.005, 0.0005]))
def test_students_quantile(freedom, tail):
    expected = stats.t.isf(tail, freedom)
    assert student_quantile(freedom, tail) == pytest.approx(expected, rel=QUANTILE if tail == 0.025 else 10 * QUANTILE)


def test_students_interval_is_scipys():
    d = np.random.default_rng(0).standard_t(2, size=30)
    low, high = student_bounds(d)
    expected = stats.t.interval(0.95, 29, d.mean(), stats.sem(d))
    assert (low, high) == pytest.approx([float(end) for end in expected], rel=QUANTILE)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30), st.floats(-3, 3), st.floats(0.1, 10))
@settings(max_examples=30)
def test_the_interval_of_a_mean_moves_and_scales_with_the_values(values, shift, scale):
    d = np.array(values)
    low, high = mean_interval(d)
    assert low <= d.mean() + 1e-9 and d.mean() - 1e-9 <= high
    assert mean_interval(scale * d + shift) == pytest.approx((scale * low + shift, scale * high + shift), abs=1e-7)
    assert mean_interval(-d) == pytest.approx((-high, -low), abs=1e-7)


def test_one_sample_has_no_interval_and_equal_samples_have_a_point():
    assert mean_interval(np.array([1.0])) is None
    assert mean_interval(np.full(50, 0.25)) == (0.25, 0.25)


def test_exchanged_heavy_tailed_pairs_are_rarely_called_different(monkeypatch):
    """Cauchy differences have no mean at all; the exchange of models still has no preferred side."""
    monkeypatch.setattr(means, "HALVES", 399)
    rng, called = np.random.default_rng(1), 0
    for _ in range(400):
        low, high = mean_interval(rng.standard_cauchy(60))
        called += low > 0 or high < 0
    assert called <= 20


def test_the_difference_of_two_estimates():
    assert difference_interval(3, 1, (2, 5), (0, 2)) == pytest.approx((2 - math.hypot(1, 1), 2 + math.hypot(2, 1)))
    assert difference_interval(3, 1, (2, 5), (1, 1)) == (1, 4)
    assert difference_interval(3, 1, None, (0, 2)) is None


def excluding_zero(draw: Callable[[int], np.ndarray], n: int, times: int = 300) -> float:
    """Share of intervals that exclude the true mean, 0."""
    found = [mean_interval(draw(n)) for _ in range(times)]
    return float(np.mean([low > 0 or high < 0 for low, high in found]))


@pytest.mark.parametrize(("n", "at_most"), [(50, 0.11), (200, 0.10)])
def test_skewed_differences_are_called_less_often_than_by_students_interval(n, at_most, monkeypatch):
    """Lognormal, σ = 1.5: without Hall's part 16 to 19 % and 12 to 15 % are called different."""
    monkeypatch.setattr(means, "HALVES", 399)
    rng = np.random.default_rng(3)
    assert excluding_zero(lambda n: rng.lognormal(0, 1.5, n) - math.exp(1.5**2 / 2), n) <= at_most


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30), st.sampled_from([0.05, 0.01, 0.001]))
@settings(max_examples=40)
def test_halls_bounds_undo_his_transformation(values, level):
    d = np.array(values)
    assume(np.ptp(d) > 1e-2)
    n, spread = len(d), d.std(ddof=1)
    skew = (((d - d.mean()) / spread) ** 3).mean()
    for end, sign in zip(hall_bounds(d, level), (1, -1), strict=True):
        w = (d.mean() - end) / spread
        t = math.sqrt(n) * (w + skew * w**2 / 3 + skew**2 * w**3 / 27 + skew / (6 * n))
        assert t == pytest.approx(sign * stats.t.isf(level / 2, n - 1), rel=1e-3)


@given(COUNTS, st.lists(st.floats(-5, 5), min_size=3, max_size=40))
@settings(max_examples=25)
def test_a_stricter_level_gives_a_wider_interval(counts, values):
    b, c, agreeing = counts
    flagged = flags(b, c, agreeing)
    for made in (lambda level: share_interval(*flagged, level), lambda level: mean_interval(np.array(values), level)):
        (low, high), (lower, higher) = made(0.05), made(0.001)
        assert lower <= low + 1e-12 and high <= higher + 1e-12
