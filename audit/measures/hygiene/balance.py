"""Are the classes of train and test alike? Counts, and Pearson's X² against random re-divisions of the samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audit.maths.shares import wilson
from audit.measures.hygiene.block import ClassBalance

SIGNIFICANT = 0.01


def class_balance(
    y: NDArray[np.int64], y_test: NDArray[np.int64], names: Sequence[str], draws: int, seed: int
) -> ClassBalance:
    """Counts of the classes `names` in both splits, and whether their proportions differ."""
    train, test = (np.bincount(labels, minlength=len(names)) for labels in (y, y_test))
    p = p_value(train, test, draws, seed)
    present = train[train > 0]
    missing = [[name for name, count in zip(names, counts, strict=True) if not count] for counts in (train, test)]
    return ClassBalance(
        train=dict(zip(names, train.tolist(), strict=True)),
        test=dict(zip(names, test.tolist(), strict=True)),
        missing_in_train=missing[0],
        missing_in_test=missing[1],
        ratio=float(present.max() / present.min()),
        difference=float(np.abs(train / train.sum() - test / test.sum()).sum() / 2),
        p_value=p,
        p_value_ci95=wilson(p, 1 + draws),
        differ=p < SIGNIFICANT,
        draws=draws,
    )


def p_value(train: NDArray[np.int64], test: NDArray[np.int64], draws: int, seed: int) -> float:
    """Share of random re-divisions whose X² is at least the observed one, the observed division counted among them."""
    pooled = train + test
    pooled, test = pooled[pooled > 0], test[pooled > 0]
    rng = np.random.default_rng(seed)
    divided = rng.multivariate_hypergeometric(pooled, int(test.sum()), size=draws, method="marginals")
    observed, expected = _x_squared(test[None], pooled)[0], _x_squared(divided, pooled)
    return float((1 + (expected >= observed * (1 - 1e-12)).sum()) / (1 + draws))


def _x_squared(test: NDArray[np.int64], pooled: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pearson's X² of the 2 × C table up to a factor that is the same for all divisions [draws]."""
    mean = pooled * (test[0].sum() / pooled.sum())
    return np.asarray(((test - mean) ** 2 / pooled).sum(1))
