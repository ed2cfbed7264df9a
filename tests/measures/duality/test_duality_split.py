"""Where sharp directions end, and how sure the split is."""

from __future__ import annotations

import numpy as np
import pytest

from audit.maths.resample import Bootstrap
from audit.measures.duality.decompose import sharp_border
from audit.measures.duality.uncertainty import Evidence, Part, split_intervals


@pytest.mark.parametrize(
    ("sigma", "count", "elbow"),
    [
        ([1.0, 1.0, 1.0, 0.2, 0.2], 2, False),  # the drop lies beyond 70 %, and it is not where half is
        ([1.0] * 5 + [0.4] * 20, 5, True),
        ([0.99**n for n in range(200)], 34, False),
        ([1.0], 1, False),
        ([1.0, 0.0], 1, True),
    ],
)
def test_the_border(sigma: list[float], count: int, elbow: bool) -> None:
    border = sharp_border(sigma, float(np.square(sigma).sum()))
    assert (border.count, border.elbow) == (count, elbow)


def test_the_border_of_kept_directions_that_hold_too_little() -> None:
    border = sharp_border([1.0, 1.0], 20.0)
    assert border.count == 2 and not border.elbow
    assert border.note == (
        "the 2 kept directions hold only 10% of the variance of the effective gradients, so all of them count as "
        "sharp; raise --directions to look further"
    )


def test_the_bootstrap_is_the_plain_one_to_first_order() -> None:
    rng = np.random.default_rng(0)
    K, N = 200, 6
    w = rng.normal(size=(K, N)) + 0.1
    s = rng.exponential(size=K)
    g = s[:, None] * w

    def part(n: int) -> Part:
        return Part((g * w)[:, :n].sum(1), w[:, :n] @ g[:, :n].mean(0), g[:, :n] @ w[:, :n].mean(0))

    found = split_intervals([Evidence((g * w).sum(1), part(2), part(N))], Bootstrap(2000, 0))[0]
    plain = []
    for _ in range(2000):
        rows = rng.integers(K, size=K)
        covariance = ((g[rows] - g[rows].mean(0)) * (w[rows] - w[rows].mean(0))).mean(0)
        plain.append(covariance[:2].sum() / covariance.sum())
    assert found.sharp_share == pytest.approx(tuple(np.percentile(plain, (2.5, 97.5))), abs=0.01)
