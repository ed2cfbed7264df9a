"""Made-up classifiers whose calibration is known, and what the measure says of them."""

from __future__ import annotations

import numpy as np
from references.calibration import softmax

from audit.maths.resample import Bootstrap
from audit.measures.calibration.block import Calibration
from audit.measures.calibration.measure import measure_calibration
from audit.network.records import Outcome


def outcome(n: int, seed: int, too_sure: float = 1.0, classes: int = 4, sharp: float = 3.0) -> Outcome:
    """Labels drawn from softmax(f / too_sure): calibrated at 1, over-confident above."""
    rng = np.random.default_rng(seed)
    scores = sharp * rng.normal(size=(n, 1 if classes == 2 else classes))
    pair = np.concatenate([np.zeros((n, 1)), scores], 1) if classes == 2 else scores
    p = np.array([softmax(row) for row in pair / too_sure])
    labels = np.minimum((p.cumsum(1) < rng.random((n, 1))).sum(1), pair.shape[1] - 1)
    answers = (scores[:, 0] >= 0).astype(int) if classes == 2 else scores.argmax(1)
    return Outcome(scores, labels, np.zeros(n), (answers != labels).astype(float))


def measured(test: Outcome, train: Outcome | None = None, draws: int = 400) -> Calibration:
    return measure_calibration(train or outcome(80, 99), test, Bootstrap(draws, 0))
