"""What the report says about calibration."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.fields import Interval, says


@dataclass(frozen=True, kw_only=True)
class ConfidenceBin:
    """Samples of about the same confidence; equal confidences are never in two bins."""

    confidence: float = says("mean confidence of its samples")
    accuracy: float = says("share of its samples that are answered rightly")
    accuracy_ci95: Interval = says("Wilson's interval of a share; of positions, by a bootstrap over samples")
    samples: int = says("samples in the bin, or positions where every position has a label")


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """One split: how sure the model was, and how often it was right. Confidence: probability of the answered class."""

    samples: int = says("samples of the split, or labelled positions")
    confidence: float = says("mean confidence")
    confidence_ci95: Interval
    accuracy: float = says("share of right answers")
    accuracy_ci95: Interval = says("Wilson's interval of a share; of positions, by a bootstrap over samples")
    overconfidence: float = says("mean confidence minus accuracy; below 0 the model is less sure than it could be")
    overconfidence_ci95: Interval = says("the wider of a bootstrap over samples and a score interval, on each side")
    ece: float = says("expected calibration error over the bins below; too high on average where samples are few")
    ece_ci95: Interval = says("corrected for that; reaches 0 where a perfectly calibrated model may show as much")
    ece_if_calibrated: float = says("mean of what a perfectly calibrated model with these confidences would show")
    ece_if_calibrated_ci95: Interval = says("where 95 % of such models lie")
    brier: float = says("mean of Σ (probability − answer)² over all classes, 0 to 2; with two classes, too")
    brier_ci95: Interval
    brier_guess: float = says("the same of always answering with the class shares of train")
    brier_guess_ci95: Interval
    brier_skill: float | None = says("1 − brier / brier_guess: 1 is perfect, 0 no better; null where the guess is")
    brier_skill_ci95: Interval
    bins: list[ConfidenceBin] = says("of about equally many samples, by confidence, lowest first")
    worst_bin: int | None = says(
        "position in bins of the one that adds most to ece, of those whose interval excludes their confidence"
    )


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Temperature scaling: dividing all scores by one number, which changes no answer.

    Fitted on the test split itself, so loss and error after it are a little too good.
    """

    temperature: float | None = says("with the least loss on the test split; above 1 where the model is too sure")
    temperature_ci95: Interval = None
    loss: float | None = says("mean test loss after dividing by it", default=None)
    loss_ci95: Interval = None
    ece: float | None = says("expected calibration error on test after dividing by it", default=None)
    ece_ci95: Interval = None
    skipped: str | None = says("why there is none", default=None)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """A size of error, and how many samples stay within it."""

    id: str = says("rmse-1, rmse-2: so many times the train RMSE; share-90, share-95: holds that share of train errors")
    limit: float = says("size of error, in units of the target")
    train_within: float = says("share of train samples whose error is no larger")
    train_within_ci95: Interval = says("Wilson's interval of a share")
    test_within: float
    test_within_ci95: Interval
    difference: float = says("test_within minus train_within; below 0 where larger errors are more frequent on test")
    difference_ci95: Interval = says("Newcombe's interval of a difference of shares")


@dataclass(frozen=True, kw_only=True)
class ResidualBin:
    """Test samples with about the same prediction."""

    prediction: float = says("mean prediction of its samples")
    residual: float = says("mean of prediction minus target")
    residual_ci95: Interval
    samples: int = says("samples in the bin, or positions where every position has a label")


@dataclass(frozen=True, kw_only=True)
class OutputErrors:
    """The errors of one output of a regression."""

    output: int = says("position among the model's outputs, from 0")
    train_bias: float = says("mean of prediction minus target on train")
    train_bias_ci95: Interval
    test_bias: float
    test_bias_ci95: Interval
    coverage: list[Coverage]
    bins: list[ResidualBin] = says("of about equally many test samples, by prediction, lowest first")
    predictions: list[float] = says("of some test samples, evenly spread over their order by prediction; to be drawn")
    residuals: list[float] = says("prediction minus target of these samples")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Whether confidence is worth what it says; for regression, whether errors on test are those of train."""

    test: Confidence | None = says("null for regression")
    train: Confidence | None = says("null for regression")
    scaling: Scaling | None = says("null for regression")
    outputs: list[OutputErrors] = says("regression only: the first outputs", default_factory=list)
    outputs_left_out: int = says("further outputs, of which nothing is said here", default=0)
    bootstrap: int = says("draws behind the intervals of means, and of calibrated models", default=0)
    skipped: str | None = says("why test, train and scaling are null", default=None)
