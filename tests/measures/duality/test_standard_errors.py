"""Standard errors to first order, against the spread over resampled pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from audit.measures.duality.uncertainty import Part, direction_errors, share_error

SAMPLED = 0.15  # 400 resamples of 500 pairs: the spread of a spread is 1/√800, and the first order is not all


def drawn_pairs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """w and g = s w [K, N], with different means, scales and tails."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(500, 4)) * [1.0, 0.5, 2.0, 0.1] + [0.3, 0.0, -1.0, 0.2]
    return w, rng.exponential(size=(500, 1)) * w + 0.2 * rng.normal(size=(500, 4))


def numbers(w: np.ndarray, g: np.ndarray) -> dict[str, np.ndarray]:
    sigma_g, sigma_w = g.std(0), w.std(0)
    contribution = ((g - g.mean(0)) * (w - w.mean(0))).mean(0)
    return {
        "sigma_g": sigma_g,
        "sigma_w": sigma_w,
        "cumulative_w": sigma_w.cumsum(),
        "c": contribution / (sigma_g * sigma_w),
        "contribution": contribution,
        "share": contribution[:2].sum() / contribution.sum(),
    }


def part(w: np.ndarray, g: np.ndarray) -> Part:
    return Part((g * w).sum(1), w @ g.mean(0), g @ w.mean(0))


@pytest.mark.parametrize("name", ["sigma_g", "sigma_w", "cumulative_w", "c", "contribution", "share"])
def test_errors_are_the_spread_over_resamples(name: str) -> None:
    w, g = drawn_pairs()
    rng = np.random.default_rng(1)
    draws = [numbers(w[rows], g[rows])[name] for rows in rng.integers(500, size=(400, 500))]
    if name == "share":
        ours = share_error(part(w[:, :2], g[:, :2]), part(w, g), part(w, g).contribution)
    else:
        found = direction_errors(torch.from_numpy(w), torch.from_numpy(g), numbers(w, g)["c"].tolist())
        ours = getattr(found, name)
    assert ours == pytest.approx(np.std(draws, 0), rel=SAMPLED)


def test_a_direction_that_does_not_vary_has_no_error() -> None:
    w, g = drawn_pairs()
    w[:, 1], g[:, 1] = 3.0, 0.0
    found = direction_errors(torch.from_numpy(w), torch.from_numpy(g), [0.5, None, 0.5, 0.5])
    assert (found.sigma_w[1], found.sigma_g[1], found.contribution[1], found.c[1]) == (0.0, 0.0, 0.0, None)


def test_what_is_not_positive_has_no_share() -> None:
    w, g = drawn_pairs()
    assert share_error(part(w, -g), part(w, -g), -1.0) is None
