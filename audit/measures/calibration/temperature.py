"""The temperature that would calibrate a classifier: the T with the least mean loss of scores f/T (Guo et al. 2017).

With β = 1/T and the margins m_k = f_k − f_y the loss of a sample is ℓ(β) = ln Σ_k exp(β m_k), convex in β, with
ℓ′ = Σ_k p_k m_k and ℓ″ = Σ_k p_k m_k² − (ℓ′)², p = softmax(β m). So there is one minimum: inside, at 0 or nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.maths.clusters import cluster_sums
from audit.maths.resample import TRAIN, Bootstrap, interval
from audit.maths.shares import Z95
from audit.measures.calibration.bins import Array
from audit.measures.calibration.block import Scaling
from audit.measures.calibration.confidence import Answers, Reliability, calibration_error

STEPS = 200
CLOSE = 1e-14  # of β
SHARPEST = 2.0**40  # β, for margins up to 1, beyond which there is no telling it from infinity
WIDEST = math.log(100.0)  # of ln T to either side: a wider interval says nothing
NO_MISTAKE = "no test sample is answered wrongly, so that the loss falls the sharper the scores are made, without end"
NO_HINT = "the loss falls the closer all probabilities are to equal: on these samples the scores are no help"
OPEN = "these test samples leave it open by more than a factor of a hundred"


@dataclass(frozen=True)
class Slopes:
    """Loss, first and second derivative in β, of each sample [n]."""

    loss: Array
    first: Array
    second: Array


def slopes_at(m: Array, beta: float) -> Slopes:
    """Of margins m [n, C]."""
    top = m.max(1, keepdims=True)
    e = np.exp(beta * (m - top))
    total = e.sum(1)
    p = e / total[:, None]
    first = (p * m).sum(1)
    return Slopes(beta * top[:, 0] + np.log(total), first, (p * m**2).sum(1) - first**2)


def fit_temperature(answers: Answers, bootstrap: Bootstrap, stream: int = TRAIN) -> Scaling:
    """T with its interval, and the loss and calibration error after it; all on the same samples."""
    m = answers.f - answers.f[np.arange(len(answers.y)), answers.y][:, None]
    unit = float(np.abs(m).max()) or 1.0
    m = m / unit
    if float(slopes_at(m, 0.0).first.mean()) >= 0:
        return Scaling(temperature=None, skipped=NO_HINT)
    if not (m > 0).any():
        return Scaling(temperature=None, skipped=NO_MISTAKE)
    beta = _minimum(m)
    slopes = slopes_at(m, beta)
    half = _half_width(slopes, beta, answers.sample)
    if half > WIDEST:
        return Scaling(temperature=None, skipped=OPEN)
    scaled = Reliability.of(replace(answers, f=beta * (answers.f / unit)))
    drawn = answers.means(np.column_stack([slopes.loss, scaled.excess]), bootstrap, stream)  # [draws, 1 + B]
    error = calibration_error(scaled, drawn[:, 1:], bootstrap.seed + stream)
    return Scaling(
        temperature=unit / beta,
        temperature_ci95=(unit / beta * math.exp(-half), unit / beta * math.exp(half)),
        loss=float(slopes.loss.mean()),
        loss_ci95=interval(drawn[:, 0]),
        ece=error.value,
        ece_ci95=error.ci95,
    )


def _minimum(m: Array) -> float:
    """Where the mean slope is 0: Newton's steps, and halving where one leaves the bracket; at most `SHARPEST`."""
    low, high = 0.0, 1.0
    while high < SHARPEST and float(slopes_at(m, high).first.mean()) < 0:
        low, high = high, 2 * high
    beta = high
    for _ in range(STEPS):
        slopes = slopes_at(m, beta)
        slope, bend = float(slopes.first.mean()), float(slopes.second.mean())
        low, high = (beta, high) if slope < 0 else (low, beta)
        newton = beta - slope / bend if bend > 0 else low
        here = newton if low < newton < high else (low + high) / 2
        if abs(here - beta) <= CLOSE * beta:
            break
        beta = here
    return beta


def _half_width(slopes: Slopes, beta: float, sample: NDArray[np.int64] | None) -> float:
    """Half the 95 % interval of ln T = −ln β: z √(max(Σ ℓ′², Σ ℓ″)) / (β Σ ℓ″).

    With Σ ℓ″ it is that of Fisher's information, right if f/T is calibrated, with Σ ℓ′² Huber's (1967) sandwich, right
    either way but too sure where few answers are wrong. Of samples with several answers, ℓ′ is the sum over these.
    """
    bend, first = float(slopes.second.sum()), slopes.first
    if sample is not None:
        first = cluster_sums(first[:, None], sample, int(sample[-1]) + 1)[:, 0]
    spread = math.sqrt(max(float((first**2).sum()), bend))
    return Z95 * spread / (beta * bend) if bend > 0 else math.inf
