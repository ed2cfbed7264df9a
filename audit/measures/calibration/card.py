"""Definition cards of calibration."""

from __future__ import annotations

from audit.report.fields import Card, Compared

TOP = "Confidence is the largest of the softmax probabilities; with one score f, the larger of σ(f) and 1 − σ(f)."
POSITIONS = (
    "Where every position has a label, answers are those of labelled positions, and intervals draw whole samples."
)
BINS = "At most 10 bins of about equally many samples, at least 20 each; equal confidences are never in two bins."
ELSEWHERE = "Whether single classes or groups of samples are calibrated, nor what happens on data from elsewhere."
GUO = "Guo et al., On Calibration of Modern Neural Networks, ICML (2017)"

CARDS: tuple[Card, ...] = (
    Card(
        id="calibration.test.bins",
        title="Reliability diagram",
        meaning="Among answers given with about the same confidence, how many are right.",
        formula="for each bin b: mean of c_i, and share of right answers, over its samples",
        source="DeGroot & Fienberg, The Comparison and Evaluation of Forecasters (1983)",
        variant=f"{TOP} {BINS} Intervals of shares: Wilson's (1927). {POSITIONS}",
        can_tell="At which confidence the model is too sure, and at which not sure enough.",
        cannot_tell=ELSEWHERE,
        covers=("calibration.train.bins",),
    ),
    Card(
        id="calibration.test.ece",
        title="Expected calibration error",
        meaning="By how much confidence and share of right answers differ, over bins of equal confidence.",
        formula="ECE = Σ_b |Σ_{i∈b} (c_i − r_i)| / n, r_i = 1 for a right answer, else 0",
        source="Naeini et al., Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI (2015)",
        variant=(
            f"{TOP} {BINS} Interval: as far on either side as a bootstrap over samples reaches above it, and down to 0 "
            "where it is within 95 % of what calibrated models show. Those are simulated: the same confidences, each "
            f"answer right with the probability that was stated. {POSITIONS} Calibrated models are then simulated by "
            "random signs of whole samples."
        ),
        normalisation="Share of samples, 0 to 1.",
        can_tell="Beside ece_if_calibrated: whether the confidences are off by more than chance.",
        cannot_tell=f"{ELSEWHERE} It is above 0 for a calibrated model, too: the more so, the fewer samples there are.",
        contradictions="Its size depends on the bins. One that always says how often it is right has 0, and is no use.",
        covers=(
            *("calibration.test.ece_if_calibrated", "calibration.train.ece_if_calibrated"),
            *("calibration.train.ece", "calibration.scaling.ece"),
        ),
    ),
    Card(
        id="calibration.test.overconfidence",
        title="Over-confidence",
        meaning="How much surer the model is, on average, than it is right; below 0 it is less sure than it could be.",
        formula="mean of c_i − share of right answers",
        source="standard: calibration in the large",
        variant=(
            f"{TOP} Interval: the wider, on each side, of a bootstrap over samples and of all shifts δ under which "
            "answers that are right with probability c_i − δ may give what was seen (a score interval; Wilson 1927). "
            f"{POSITIONS}"
        ),
        normalisation="Difference of shares: 0.05 is five percentage points.",
        can_tell="Whether the model's confidence is too high or too low on samples like these.",
        cannot_tell=f"{ELSEWHERE} Too high here and too low there may add up to nothing: see the reliability diagram.",
        covers=tuple(
            f"calibration.{split}.{name}"
            for split in ("test", "train")
            for name in ("confidence", "accuracy", "overconfidence")
        ),
    ),
    Card(
        id="calibration.test.brier",
        title="Brier score",
        meaning="How far the probabilities of all classes are from the right answer: 0 is perfect.",
        formula="mean of Σ_k (p_k − y_k)² over all classes k, y_k = 1 for the right class, else 0",
        source="Brier, Verification of Forecasts Expressed in Terms of Probability (1950)",
        variant=(
            "Summed over all classes, from 0 to 2; with two classes, too: half of it is the (p − y)² that is often "
            "quoted. brier_guess: of always answering with the class shares of the train split; brier_skill: "
            "1 − brier/brier_guess. Intervals: bootstrap over samples, the class shares held fixed."
        ),
        can_tell="Whether the probabilities are worth more than a constant guess; no false ones make it better.",
        cannot_tell="Whether it is sharpness or calibration that is missing.",
        covers=tuple(
            f"calibration.{split}.{name}"
            for split in ("test", "train")
            for name in ("brier", "brier_guess", "brier_skill")
        ),
    ),
    Card(
        id="calibration.scaling.temperature",
        title="Temperature",
        meaning="What all scores would have to be divided by to fit best: above 1 the model is too sure of itself.",
        formula="T = arg min over T of the mean of −ln softmax(f/T)_y",
        source=GUO,
        variant=(
            "Found on the test split itself, which makes loss and error after it a little too good. Null where the "
            "best T is 0 (no mistake) or infinite, or open by a factor of a hundred. Interval: of ln T, from the "
            "second derivative and the spread of the first over samples, whichever is wider."
        ),
        can_tell="Whether one number would mend the confidences; no answer changes.",
        cannot_tell="What T is for another split. To use one, fit it on samples that nothing is tested on.",
        covers=("calibration.scaling.loss",),
    ),
    Card(
        id="calibration.outputs.coverage",
        title="Coverage of errors",
        meaning="How many test errors are within a size that holds most train errors.",
        formula="share of samples with |f − y| ≤ limit, on test and on train",
        source="counting",
        variant=(
            "Regression only. Limits from train: once and twice the RMSE, and the least error that 90 % and 95 % of "
            "the samples do not exceed. Intervals: Wilson's (1927), and Newcombe's (1998) of the difference. The first "
            "6 outputs."
        ),
        can_tell="Whether error bars taken from train errors hold on samples like the test split.",
        cannot_tell="How large the error of a single prediction is.",
    ),
    Card(
        id="calibration.outputs.bins",
        title="Residuals by prediction",
        meaning="Whether large predictions are too large, or small ones too small.",
        formula="mean of f − y over test samples with about the same prediction f",
        source="standard: the residual plot",
        variant=(
            "Regression only. At most 10 bins of about equally many samples, at least 20 each. bias is the mean over "
            "all samples; up to 200 samples are kept to be drawn. Intervals: bootstrap over samples."
        ),
        can_tell="Whether the model is off by more than chance in a part of its range.",
        cannot_tell="Why: such samples may be rare in train, or hard by nature.",
        covers=tuple(f"calibration.outputs.{name}" for name in ("train_bias", "test_bias", "predictions", "residuals")),
    ),
)
COMPARED = (
    Compared("calibration.test.ece", "Expected calibration error on test", "calibration", "percent"),
    Compared("calibration.test.overconfidence", "Mean confidence minus accuracy on test", "calibration", "percent"),
    Compared("calibration.test.brier", "Brier score on test", "calibration"),
)
