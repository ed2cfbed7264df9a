"""What the report says about small changes of the inputs and of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audit.report.fields import Interval, says

Kind = Literal["input-noise", "input-worst", "weights-rounded", "weights-noise", "neurons-noise"]
Quantity = Literal["score_change", "score_change_rms", "loss_change"]
FORETELLING = ("mls", "sharpness", "kappa_tau", "rho_sigma")  # numbers that foretell what small changes do
Verdict = Literal["as foretold", "less", "more", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class Theory:
    """What a number of the theory foretold of the same change, and what was measured, both on train samples."""

    number: str = says("path of the number in this report", pattern=rf"(^|\.)({'|'.join(FORETELLING)})$")
    quantity: Quantity = says("what it foretells: the mean or root mean square change of the scores, or of the loss")
    measured: float = says("this quantity on train samples")
    measured_ci95: Interval = None
    foretold: float | None = says("what the number says it should be, or the least that it allows", default=None)
    foretold_most: float | None = says("the most that it allows, where that is something else", default=None)
    ratio: float | None = says("measured over foretold", default=None)
    ratio_ci95: Interval = says("of what was measured; the number itself is held fixed", default=None)
    verdict: Verdict | None = says(
        "as foretold: within a factor of 2 of what the number allows, and surely above zero; less or more: the whole "
        "interval is off by a larger factor",
        default=None,
    )
    skipped: str | None = says("why nothing was foretold", default=None)


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """One small change, and what became of the test samples. Differences are paired by sample: changed − unchanged."""

    id: str
    kind: Kind
    size: float | None = says("of the change: a share of the input's spread, or of the norm of the layer's weights")
    layer: str | None = says("whose weights were changed", default=None)
    draws: int = says("random draws that the numbers are means over; 1: nothing is random")
    loss: float = says("mean test loss after the change")
    loss_ci95: Interval
    loss_change: float
    loss_change_ci95: Interval
    loss_change_std: float | None = says("standard deviation of the mean over the draws", default=None)
    error: float | None = says("share of wrong answers after the change; null for regression", default=None)
    error_ci95: Interval = None
    error_change: float | None = None
    error_change_ci95: Interval = None
    error_change_std: float | None = None
    rmse: float | None = says("root mean squared error after the change; regression only", default=None)
    rmse_ci95: Interval = None
    answers_changed: float | None = says("share of test samples that get another answer, right or wrong", default=None)
    answers_changed_ci95: Interval = None
    score_change: float = says("mean ‖f′ − f‖ over test samples")
    score_change_ci95: Interval = None
    theory: Theory | None = says("null where no number of the report speaks of this change", default=None)


@dataclass(frozen=True, kw_only=True)
class Consequences:
    """Loss and errors on test with small changes of the inputs and of the weights."""

    samples: int = says("test samples that every change was tried on")
    train_samples: int = says("train samples that the theory's numbers were held against")
    loss: float = says("mean loss of these test samples, unchanged")
    loss_ci95: Interval
    error: float | None = says("share of wrong answers, unchanged; null for regression", default=None)
    error_ci95: Interval = None
    rmse: float | None = says("regression only", default=None)
    rmse_ci95: Interval = None
    changed_place: str | None = says("what was changed as input: the input, or an embedding of tokens", default=None)
    spread: float | None = says(
        "standard deviation over train samples, root mean square over the input's numbers; null where each column of "
        "a table has its own, or each of several inputs",
        default=None,
    )
    numbers: int = says("numbers of a sample that were changed", default=0)
    rounded_weights: int = says("weights that were rounded to 8 bits", default=0)
    rounding_norm: float = says("‖w′ − w‖ over all of them", default=0.0)
    changes: list[Consequence]
    not_finite: list[str] = says("changes after which some scores are not finite", default_factory=list)
    layers_left_out: int = says("further dense layers whose weights were not changed", default=0)
    form: str = says("exact: on all test samples; sampled: on some of them", default="exact")
    bootstrap: int = says("draws behind the intervals of means over samples", default=0)
    skipped: str | None = says("why the inputs were not changed", default=None)
