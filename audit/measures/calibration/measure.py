"""When the model says 90 %, is it right in 90 of 100 cases? For regression: are its errors on test those of train?

Meaning   confidence is the probability that the model gives to its own answer; calibrated, it is the share of answers
          that are right. A regression states no confidence: what one takes for its error bars are its train errors.
Source    reliability diagram: DeGroot & Fienberg (1983); calibration error: Naeini et al. (2015); score: Brier (1950);
          temperature: Guo et al. (2017).
Can tell  whether probabilities may be used as such on samples like these, and by how much they are off.
Cannot    tell whether single classes are calibrated, nor what happens on data from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import TEST, TRAIN, Bootstrap, cluster_sums, interval
from audit.maths.shares import Z95, difference_interval, wilson
from audit.measures.calibration import DEMAND
from audit.measures.calibration.block import Calibration, Coverage, OutputErrors, ResidualBin, Scaling
from audit.measures.calibration.card import CARDS
from audit.measures.calibration.confidence import (
    Answers,
    Array,
    Places,
    Reliability,
    calibration_error,
    equal_count_bins,
    measure_confidence,
    members,
)
from audit.measures.contract import Audit, Card, Fold, Measure, Measurement
from audit.measures.workload import Demand
from audit.network.record import Products, Record
from audit.network.records import Outcome

REGRESSION = "a regression states no confidence"


class CalibrationMeasure:
    """Confidence against accuracy on both splits, or train errors against test errors."""

    key = "calibration"
    question = "Can the model's confidence, or the size of its errors, be believed?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> Fold:
        """Needs no record: the outcomes of both splits are known."""
        return _CalibrationFold(audit)


class _CalibrationFold:
    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    def see(self, record: Record, products: Products) -> None:
        """Nothing of a record."""

    def finish(self) -> Measurement:
        """Both splits."""
        audit = self.audit
        return Measurement(network=measure_calibration(audit.train_outcome, audit.test_outcome, audit.bootstrap))


MEASURE: Measure = CalibrationMeasure()


def measure_calibration(train: Outcome, test: Outcome, bootstrap: Bootstrap) -> Calibration:
    """The calibration of a classifier, or the errors of a regression."""
    if train.wrong is None or test.wrong is None:
        return Calibration(
            test=None,
            train=None,
            scaling=None,
            outputs=measure_outputs(train, test, bootstrap),
            outputs_left_out=max(0, test.scores.shape[1] - OUTPUTS),
            bootstrap=bootstrap.draws,
            skipped=REGRESSION,
        )
    there, here = answers_of(train), answers_of(test)
    guess = np.bincount(there.y, minlength=there.f.shape[1]) / len(there.y)
    return Calibration(
        test=measure_confidence(here, guess, bootstrap, TEST),
        train=measure_confidence(there, guess, bootstrap),
        scaling=fit_temperature(here, bootstrap, TEST),
        bootstrap=bootstrap.draws,
    )


def answers_of(outcome: Outcome) -> Answers:
    """Of every sample or position. One score f becomes the pair (0, f), whose softmax is 1 − σ(f), σ(f)."""
    outcome = outcome.by_position
    f = outcome.scores.astype(np.float64)
    pair = np.concatenate([np.zeros_like(f), f], 1) if f.shape[1] == 1 else f
    right = 1.0 - np.asarray(outcome.wrong, dtype=np.float64)
    return Answers(pair, outcome.labels.astype(np.int64), right, outcome.sample)


# The temperature that would calibrate a classifier: the T with the least mean loss of scores f/T (Guo et al. 2017).
#
# With β = 1/T and the margins m_k = f_k − f_y the loss of a sample is ℓ(β) = ln Σ_k exp(β m_k), convex in β, with ℓ′ =
# Σ_k p_k m_k and ℓ″ = Σ_k p_k m_k² − (ℓ′)², p = softmax(β m). So there is one minimum: inside, at 0 or nowhere.


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
        slope, curvature = float(slopes.first.mean()), float(slopes.second.mean())
        low, high = (beta, high) if slope < 0 else (low, beta)
        newton = beta - slope / curvature if curvature > 0 else low
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
    curvature, first = float(slopes.second.sum()), slopes.first
    if sample is not None:
        first = cluster_sums(first[:, None], sample, int(sample[-1]) + 1)[:, 0]
    spread = math.sqrt(max(float((first**2).sum()), curvature))
    return Z95 * spread / (beta * curvature) if curvature > 0 else math.inf


# Are the errors of a regression on test those of train? Residuals e = prediction − target, output by output.


OUTPUTS = 6  # outputs that the report speaks of
POINTS = 200  # of all of them together, to be drawn
TIMES = (1, 2)  # the train RMSE
SHARES = (0.90, 0.95)  # of the train samples
ROUNDING = 1e-9  # of a limit: an error that equals it but for rounding is within it


def measure_outputs(train: Outcome, test: Outcome, bootstrap: Bootstrap) -> list[OutputErrors]:
    """The first outputs."""
    count = min(OUTPUTS, test.scores.shape[1])
    return [_output(place, train, test, bootstrap, POINTS // count) for place in range(count)]


def _output(place: int, train: Outcome, test: Outcome, bootstrap: Bootstrap, most: int) -> OutputErrors:
    f = test.scores[:, place]
    there, here = (part.scores[:, place] - part.targets[:, place] for part in (train, test))
    chosen = evenly_spread(f, here, most)
    return OutputErrors(
        output=place,
        train_bias=float(there.mean()),
        train_bias_ci95=interval(bootstrap.means(there[:, None])[:, 0]),
        test_bias=float(here.mean()),
        test_bias_ci95=interval(bootstrap.means(here[:, None], TEST)[:, 0]),
        coverage=[_coverage(id, limit, there, here) for id, limit in limits(there)],
        bins=residual_bins(f, here, bootstrap),
        predictions=f[chosen].tolist(),
        residuals=here[chosen].tolist(),
    )


def limits(e: Array) -> Iterator[tuple[str, float]]:
    """Sizes of error to count by, from the residuals of train [n]."""
    size = np.abs(e)
    scale = float(size.max()) or 1.0  # keeps squares in range
    rmse = scale * float(np.sqrt(((size / scale) ** 2).mean()))
    yield from ((f"rmse-{times}", times * rmse) for times in TIMES)
    for share in SHARES:  # the least error that at least this share of train does not exceed
        yield f"share-{100 * share:.0f}", float(np.quantile(size, share, method="inverted_cdf"))


def _coverage(id: str, limit: float, train: Array, test: Array) -> Coverage:
    (seen, ends), (found, found_ends) = (_within(limit, e) for e in (train, test))
    return Coverage(
        id=id,
        limit=limit,
        train_within=seen,
        train_within_ci95=ends,
        test_within=found,
        test_within_ci95=found_ends,
        difference=found - seen,
        difference_ci95=difference_interval(found, seen, found_ends, ends),
    )


def _within(limit: float, e: Array) -> tuple[float, tuple[float, float]]:
    share = float((np.abs(e) <= limit * (1 + ROUNDING)).mean())
    return share, wilson(share, len(e))


def residual_bins(f: Array, e: Array, bootstrap: Bootstrap) -> list[ResidualBin]:
    """The mean residual of test samples with about the same prediction."""
    held = members(equal_count_bins(f))  # [n, B]
    scale = float(np.abs(e).max()) or 1.0
    sums, counts = np.split(bootstrap.means(np.concatenate([held * e[:, None] / scale, held], 1), TEST), 2, 1)
    means = scale * np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)  # [draws, B]
    return [
        ResidualBin(
            prediction=float(f[own > 0].mean()),
            residual=float(e[own > 0].mean()),
            residual_ci95=interval(means[:, place]),
            samples=int(own.sum()),
        )
        for place, own in enumerate(held.T)
    ]


def evenly_spread(f: Array, e: Array, most: int) -> Places:
    """Rows of at most so many samples, evenly spaced in the order of f, whatever the order of the samples.

    >>> evenly_spread(np.array([3.0, 1.0, 2.0]), np.zeros(3), 2).tolist()
    [1, 0]
    """
    order = np.lexsort((e, f))
    ranks = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(np.int64)
    return np.asarray(order[ranks])
