"""Definition cards of small changes."""

from __future__ import annotations

from audit.report.fields import Card

PAIRED = (
    "On at most 1,024 test samples, drawn by the seed where there are more; changed minus unchanged, sample by sample. "
    "Intervals: bootstrap over samples, Tango's (1998) for shares; wider by the spread over the draws where one random "
    "change of weights is the same for all samples."
)
ELSEWHERE = "What other changes do: blur, another camera, missing values, or somebody who tries harder."

CARDS: tuple[Card, ...] = (
    Card(
        id="consequences.changes",
        title="Small changes of the input and of the weights",
        meaning="How many more answers are wrong, and how much the loss grows, when something small is changed.",
        formula="mean over samples and draws of l(changed) − l(unchanged); of wrong answers, likewise",
        source="measured; the worst step: Goodfellow et al., Explaining and Harnessing Adversarial Examples (2015)",
        variant=(
            "Noise: normal, 1, 2 and 5 % of the input's spread, 4 draws. Spread: standard deviation over train "
            "samples; of a table each column's own, else one for all numbers of the input, root mean square. Worst "
            "change: one step along the gradient of the loss, of Euclidean length 1 % of the spread times √d for d "
            "numbers, so that it is as long as noise of 1 %. Nothing is clipped to a valid range. 8 bits: every weight "
            "matrix and kernel, one symmetric step of max |w|/127 per tensor; biases and normalisations stay. Layers: "
            "a random direction of exactly 1, 2 and 5 % of the norm of the layer's weights; neurons: each one's "
            "weights scaled by 1 + 0.05 ξ, ξ standard normal; 4 draws and their opposites each, of at most 12 layers. "
            "Where the input is token ids, the answer of their embedding is changed instead. " + PAIRED
        ),
        can_tell="How much such changes cost this model on samples like these.",
        cannot_tell=ELSEWHERE,
        covers=tuple(
            f"consequences.{name}"
            for name in (
                *("loss", "error", "rmse", "spread", "rounding_norm"),
                *("changes.loss", "changes.loss_change", "changes.error", "changes.error_change", "changes.rmse"),
                *("changes.answers_changed", "changes.score_change", "changes.size"),
            )
        ),
    ),
    Card(
        id="consequences.changes.theory",
        title="What the theory foretold",
        meaning="What a number of the appendix says such a change should do, beside what it did.",
        formula=(
            "noise: ε s MLS to √min(C, d) ε s MLS; worst step: ε s √d MLS; 8 bits: √(S/P) ‖w′ − w‖; layer: "
            "½ ε² κ_τ/(in·out), at most ½ ε² κ; neurons: ½ ε² ρ_σ"
        ),
        source="first and second order of Taylor's series; Petzka et al. (2019); Prop. 3.8's MLS and S(θ)",
        variant=(
            "Measured on a quarter as many train samples, since the theory's numbers are about train. As foretold: "
            "what was measured is within a factor of 2 of what the theory allows, and surely above zero. Less or more: "
            "its whole 95 % interval is off by a larger factor."
        ),
        can_tell="Whether flatness and sensitivity mean on this model what they are said to mean.",
        cannot_tell="Whether a flat or insensitive model generalises: that is another claim.",
        contradictions=(
            "Numbers that are off by orders of magnitude are no fault of the arithmetic: where the loss is curved on a "
            "smaller scale than the change, second order does not reach that far."
        ),
        covers=tuple(
            f"consequences.changes.theory.{name}" for name in ("measured", "foretold", "foretold_most", "ratio")
        ),
    ),
)
