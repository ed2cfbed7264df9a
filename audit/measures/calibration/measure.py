"""When the model says 90 %, is it right in 90 of 100 cases? For regression: are its errors on test those of train?

Meaning   confidence is the probability that the model gives to its own answer; calibrated, it is the share of answers
          that are right. A regression states no confidence: what one takes for its error bars are its train errors.
Source    reliability diagram: DeGroot & Fienberg (1983); calibration error: Naeini et al. (2015); score: Brier (1950);
          temperature: Guo et al. (2017).
Can tell  whether probabilities may be used as such on samples like these, and by how much they are off.
Cannot    tell whether single classes are calibrated, nor what happens on data from elsewhere.
"""

from __future__ import annotations

import numpy as np

from audit.maths.resample import TEST, Bootstrap
from audit.measures.calibration.block import Calibration
from audit.measures.calibration.card import CARDS
from audit.measures.calibration.confidence import Answers, measure_confidence
from audit.measures.calibration.residuals import OUTPUTS, measure_outputs
from audit.measures.calibration.temperature import fit_temperature
from audit.measures.contract import Audit, Card, Fold, Measure, Measurement
from audit.network.record import Products, Record
from audit.network.records import Outcome

REGRESSION = "a regression states no confidence"


class CalibrationMeasure:
    """Confidence against accuracy on both splits, or train errors against test errors."""

    key = "calibration"
    question = "Can the model's confidence, or the size of its errors, be believed?"
    cards: tuple[Card, ...] = CARDS

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
