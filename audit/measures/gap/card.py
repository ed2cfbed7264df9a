"""Definition cards of the observed gap."""

from __future__ import annotations

from audit.report.fields import Card, Compared

RESAMPLED = "Intervals: 2.5 % and 97.5 % quantiles of a bootstrap that draws train and test samples independently."
COUNTED = (
    "Intervals: Wilson's (1927) of each share of wrong answers, Newcombe's (1998) of their difference. Where every "
    "position has a label, shares are of labelled positions, and intervals by a bootstrap over samples, never over "
    "positions."
)
LIKE_THE_TEST_SPLIT = (
    "How the model does on data from elsewhere or from later, nor how another run of the same training would do."
)

CARDS: tuple[Card, ...] = (
    Card(
        id="gap.loss_gap",
        title="Loss gap",
        meaning="How much more an unseen sample costs than a train sample, on average.",
        formula="L_test − L_train, L the mean loss per sample",
        source="the definition of the generalization gap, estimated on the given splits",
        variant=f"The audited model in evaluation mode; no augmentation, no weight penalty. {RESAMPLED}",
        normalisation="Mean per sample: nats, or for regression half the squared error, summed over outputs.",
        can_tell="Whether the model does worse on the test split than chance in drawing these samples explains.",
        cannot_tell=LIKE_THE_TEST_SPLIT,
        contradictions="One very confident wrong answer can rule the mean loss: read it beside the error gap.",
        covers=("gap.per_class",),
    ),
    Card(
        id="gap.test_loss",
        title="Test loss",
        meaning="What an unseen sample costs on average; train_loss says the same of a train sample.",
        formula="L = mean over the split's samples of ℓ(f(x), y)",
        source="standard",
        variant=(
            "ℓ is −ln of the probability given to the right class, where every position has a label its mean over the "
            "sample's labelled positions; for regression half the squared error. The audited model in evaluation mode; "
            "no augmentation, no weight penalty."
        ),
        normalisation="Mean per sample: nats, or half the squared units of the target, summed over outputs.",
        can_tell="How good the probabilities, or the predictions, are on samples like these.",
        cannot_tell=LIKE_THE_TEST_SPLIT,
        covers=("gap.train_loss", "gap.per_class.train_loss", "gap.per_class.test_loss"),
    ),
    Card(
        id="gap.error_gap",
        title="Error gap",
        meaning="By how many percentage points the model is wrong more often on unseen samples.",
        formula="share of wrong answers on test − share of wrong answers on train",
        source="the definition of the generalization gap, with the 0–1 loss",
        variant=f"The answer is the largest score; with one score, its sign. Null for regression. {COUNTED}",
        normalisation="Share of samples, or of labelled positions.",
        can_tell="Whether wrong answers become more frequent on the test split.",
        cannot_tell=f"{LIKE_THE_TEST_SPLIT} A model that is wrong everywhere has no gap either.",
    ),
    Card(
        id="gap.test_error",
        title="Test error",
        meaning="How often the model is wrong on unseen samples; train_error says the same of the train split.",
        formula="wrong answers / samples, or labelled positions, of the split; accuracy is 1 − error",
        source="standard: the mean 0–1 loss",
        variant=f"The answer is the largest score; with one score, its sign. Null for regression. {COUNTED}",
        normalisation="Share of samples, or of labelled positions.",
        can_tell="How often to expect a wrong answer on samples like these, within its interval.",
        cannot_tell=f"{LIKE_THE_TEST_SPLIT} Nor how grave a mistake is.",
        covers=(
            "gap.train_error",
            "gap.train_positions",
            "gap.test_positions",
            "gap.train_accuracy",
            "gap.test_accuracy",
            "gap.per_class.train_error",
            "gap.per_class.test_error",
        ),
    ),
    Card(
        id="gap.test_rmse",
        title="Root mean squared error",
        meaning="How far a prediction is off, in the units of the target.",
        formula="√(mean over samples and outputs of (f − y)²)",
        source="standard",
        variant="Regression only; train_rmse and test_rmse. test_rmse_guess is that of always answering train's mean.",
        cannot_tell="Which output is off, where there are several with different units.",
        covers=("gap.train_rmse", "gap.test_rmse_guess"),
    ),
    Card(
        id="gap.test_r2",
        title="Variance explained (R²)",
        meaning="How much better the predictions are than always answering the mean: 1 is perfect, 0 no better.",
        formula="1 − Σ (f − y)² / Σ (y − ȳ)², averaged over outputs",
        source="standard",
        variant="Regression only; ȳ is the mean of the split itself. Negative where the mean would have been better.",
        covers=("gap.train_r2",),
    ),
)
COMPARED = (
    Compared("gap.test_error", "Wrong answers on test", "observed", "percent", judged=True),
    Compared("gap.test_loss", "Mean loss on test", "observed", judged=True),
    Compared("gap.train_error", "Wrong answers on train", "observed", "percent"),
    Compared("gap.train_loss", "Mean loss on train", "observed"),
    Compared("gap.error_gap", "Error gap: test minus train", "observed", "percent"),
    Compared("gap.loss_gap", "Loss gap: test minus train", "observed"),
)
