"""Definition cards of the sensitivity measure: what each number is, and what it can and cannot tell."""

from __future__ import annotations

from functools import partial

from audit.report.fields import Card, Compared

PAPER = "A simple connection from loss flatness to compressed representations in neural networks (2024)"
SCALE = "It scales with the scores: twice the logits is twice the sensitivity, with the same answers."
LOOSE = "The inequality holds for every network; being tight or loose says nothing about the test set by itself."
OVER_TRAIN = "mean over the captured train samples"

_card = partial(Card, normalisation=OVER_TRAIN)

CARDS: tuple[Card, ...] = (
    _card(
        id="sensitivity.sharpness",
        title="Sharpness S(θ)",
        meaning="How strongly the scores answer to small changes of all parameters, on average over the samples.",
        formula="network: S(θ) = mean_i ‖∇_θ f(x_i)‖_F², all parameters; layer: mean_i ‖∇_W f(x_i)‖_F², weights only",
        source=f"{PAPER}, Eq. 3; Ma & Ying (2021)",
        variant="Eq. 3 itself, on logits, exact for every parameter; not Tr H of the cross-entropy (Eq. 2), which "
        "vanishes as the loss does. The paper's plots show √S.",
        can_tell="How much room the bounds below leave for sensitivity and volume at this solution.",
        cannot_tell="Rescaling layers against each other changes it without changing the function (Dinh et al. 2017).",
        contradictions="The paper itself cites studies in which even invariant forms of sharpness did not capture how "
        "well networks generalize.",
    ),
    _card(
        id="sensitivity.sharpness_trace",
        title="Trace of the quadratic loss's Hessian",
        meaning="What Eq. 3 stands for at exact interpolation: the curvature of ½‖f − y‖² summed over all parameters.",
        formula="Tr H = S(θ) + mean_i Σ_j (f_i − y_i)·∂²f_i/∂θ_j²",
        source=f"{PAPER}, Eq. 2, Lemma B.1",
        variant="Equal to S(θ) where the scores are piecewise linear in each parameter (ReLU networks). Else exact for "
        "regression; left out for classification, where ½‖f − y‖² on logits is not the loss.",
        can_tell="Whether S(θ) may be read as a curvature of the loss.",
        cannot_tell="Away from interpolation the second term is a property of the residuals, not of the solution.",
    ),
    _card(
        id="sensitivity.mls",
        title="Maximum local sensitivity (MLS)",
        meaning="The strongest answer of the scores to a small input change of unit length, averaged over samples.",
        formula="network: mean_i ‖∂f/∂x(x_i)‖₂, x the model's input; layer: mean_i ‖J_i W‖₂ through that layer",
        source=f"{PAPER}, Definition 3.7",
        variant="Spectral norm of the Jacobian of the logits. At a layer with T tokens, of the Jacobian in all tokens.",
        can_tell="How far a small perturbation of the input can move the scores; unchanged by rescaling neurons of a "
        "ReLU network against each other (the network's number).",
        cannot_tell=SCALE,
        contradictions="The paper's own needle-in-a-haystack example: who must react to details needs a high MLS.",
    ),
    _card(
        id="sensitivity.nmls",
        title="Network MLS",
        meaning="The sensitivities of the scores to the inputs of all dense layers, added up.",
        formula="Σ_l mean_i ‖J_l W_l‖₂",
        source=f"{PAPER}, Definition 3.9",
        variant=(
            "A sum, as defined (the text before the definition says average); dense layers only. With --conv each "
            "convolution has its own numbers, at its own input, but is no part of the sum."
        ),
        can_tell="Whether inner representations are more fragile than the input; its bound is the most telling one.",
        cannot_tell="It grows with the number of layers and changes under rescaling of layers.",
    ),
    _card(
        id="sensitivity.mean_log_volume",
        title="Log-volume of the local map",
        meaning="By which factor the network shrinks or stretches a small volume around a sample, as a logarithm.",
        formula="mean_i ½ ln det(∂f/∂x ∂f/∂xᵀ) over the samples of full rank C",
        source=f"{PAPER}, Eq. 7, Definition 3.1",
        variant="The determinant is that of the C×C matrix (the paper prints the other order, which is singular for "
        "more inputs than scores). All C singular values, not the leading few.",
        normalisation="mean over the samples of full rank; the others are counted in rank_deficient_samples",
        can_tell="How much the representation is compressed locally.",
        cannot_tell="One dead direction takes it to −∞; weight decay kills the logits' sum, which decides nothing.",
        contradictions="The authors' plots follow it through the top three eigenvalues only; the bound on it is loose.",
    ),
    _card(
        id="sensitivity.mean_log_volume_centred",
        title="Log-volume on centred logits",
        meaning="The same after taking off what all logits have in common, which changes no probability.",
        formula="mean_i ½ ln det(B ∂f/∂x ∂f/∂xᵀ Bᵀ), B [C−1, C] orthonormal with B (1,…,1)ᵀ = 0",
        source="gen-audit's variant of Eq. 7",
        variant="C−1 dimensions; does not exist for one score. For regression only a companion of the raw number.",
        normalisation="mean over the samples of full rank C−1",
        can_tell="Compression of what decides the answer.",
        cannot_tell="Not comparable with the raw number: it has one dimension less.",
    ),
    _card(
        id="sensitivity.log_mean_volume",
        title="Mean local volumetric ratio, in logarithm",
        meaning="The volume factor averaged over all samples, then its logarithm.",
        formula="ln (mean_i √det(∂f/∂x ∂f/∂xᵀ)); a rank-deficient sample counts as volume 0",
        source=f"{PAPER}, Definition 3.3",
        can_tell="The left side of Prop. 3.4.",
        cannot_tell="It is ruled by the few samples with the largest volume.",
    ),
    _card(
        id="sensitivity.log_network_volume",
        title="Network volumetric ratio, in logarithm",
        meaning="The mean volume factors from the inputs of all dense layers to the scores, added up.",
        formula="ln Σ_l mean_i √det(J_l W_l W_lᵀ J_lᵀ)",
        source=f"{PAPER}, Definition 3.5",
        variant="Dense layers only.",
        can_tell="The left side of Prop. 3.6.",
        cannot_tell="The layer with the largest volume rules the sum.",
    ),
    Card(
        id="sensitivity.rank_deficient_samples",
        title="Rank-deficient samples",
        meaning="Samples around which the scores cannot move in all directions: their volume is exactly zero.",
        formula="number of i with rank ∂f/∂x(x_i) < C",
        source="counting",
        variant="Singular values below max(C, D) ε times the largest count as zero; ε of the arithmetic in use.",
        can_tell="Dead directions; all samples where there are fewer inputs, or active neurons, than scores.",
    ),
    _card(
        id="sensitivity.dimensionality",
        title="Local dimensionality",
        meaning="In how many directions the scores move when the input is shaken at random: between 1 and C.",
        formula="mean_i (Σ λ)²/Σ λ², λ the eigenvalues of ∂f/∂x ∂f/∂xᵀ",
        source=f"{PAPER}, Eq. 15",
        normalisation="mean over the samples with ∂f/∂x ≠ 0",
        can_tell="Whether the answer to a perturbation is spread or runs along one direction.",
        cannot_tell="Nothing about its size, and it is not bounded by sharpness.",
        contradictions="The paper finds it unpredictable late in training and only weakly correlated with sharpness.",
    ),
    _card(
        id="sensitivity.adaptive_sharpness",
        title="Elementwise-adaptive sharpness",
        meaning="How strongly the scores answer when every parameter is changed in proportion to its own size.",
        formula="mean_i Σ_j θ_j² ‖∂f/∂θ_j(x_i)‖², all parameters",
        source=f"{PAPER}, Eq. 41; Kwon et al. (2021)",
        variant="The closed form at interpolation.",
        can_tell="A sharpness that rescaling neurons of a ReLU network does not change.",
        cannot_tell="It still scales with the logits.",
        contradictions="The paper itself cites studies in which even invariant forms of sharpness did not capture how "
        "well networks generalize.",
    ),
    _card(
        id="sensitivity.adaptive_sharpness_sampled",
        title="Elementwise-adaptive sharpness, sampled",
        meaning="The same by really changing the weights at random.",
        formula="(2/ρ²) mean over δ of ½‖f(θ+δ) − f(θ)‖², δ ~ N(0, ρ² diag θ²), ρ = 0.1",
        source=f"{PAPER}, Eq. 38, 46",
        variant="With the factor 2/ρ² of Eq. 38 that Eq. 46 drops; the targets are the model's own scores. Off by "
        "default: set adaptive_draws.",
        can_tell="What a change of finite size does.",
        cannot_tell="On ReLU networks kinks keep it from tending to the closed form for small ρ.",
    ),
    _card(
        id="sensitivity.input_invariant_mls",
        title="Input-invariant MLS",
        meaning="How strongly the scores answer when every input feature is changed in proportion to its own size.",
        formula="mean_i Σ_p x_p² ‖∂f/∂x_p‖²",
        source=f"{PAPER}, Eq. 43",
        can_tell="A sensitivity that does not depend on the units of the features.",
        cannot_tell="Shifting a feature (such as subtracting its mean) changes it.",
    ),
    _card(
        id="sensitivity.normalized_mls",
        title="Normalised MLS",
        meaning="The squared sensitivity relative to the size of the input.",
        formula="mean_i ‖x_i‖² ‖∂f/∂x(x_i)‖₂²",
        source=f"{PAPER}, Definition F.1",
        variant="Exact, on logits; the paper estimates it by ascent behind a sigmoid.",
        can_tell="Sensitivity to relative changes of the whole input.",
        cannot_tell=SCALE,
        contradictions="Among 181 vision transformers whole model families lie off the trend (the paper's Fig. 3).",
    ),
    _card(
        id="sensitivity.matrix_normalized_sharpness",
        title="Matrix-normalised sharpness",
        meaning="Sharpness layer by layer, each weighed with its weights' size, so that rescaling layers cancels.",
        formula="Σ_l ‖W_l‖₂ √(mean_i ‖∇_{W_l} f(x_i)‖_F²)",
        source=f"{PAPER}, Eq. 35; Tsuzuku et al. (2019)",
        variant="Spectral norm; dense layers only; the measured gradients, not the trace of a Hessian.",
        can_tell="An upper bound on Σ_l x̄_l MLS_l (bound eq-35).",
        cannot_tell="Rescaling single neurons still changes it.",
    ),
    Card(
        id="sensitivity.weight_spectral_norm",
        title="Spectral norm of a layer's weights",
        meaning="The most that the layer can stretch any vector.",
        formula="‖W‖₂, the largest singular value",
        source=f"{PAPER}, Eq. 5",
        can_tell="The layer's share in the bounds.",
        cannot_tell="Nothing about the directions that the data really uses.",
    ),
    _card(
        id="sensitivity.chain",
        title="From sensitivity to sharpness in three steps",
        meaning="Where the bound on MLS loses its tightness.",
        formula="A = mean ‖J W‖₂ ≤ B = ‖W‖₂ mean(‖∇_W f‖_F/‖x‖) ≤ C = ‖W‖₂ √mean(1/‖x‖²) √mean ‖∇_W f‖_F² "
        "≤ D = ‖W‖₂ √mean(1/‖x‖²) √S(θ)",
        source=f"{PAPER}, Eq. 48",
        variant="W is the layer fed by the input; where there is none, the first dense layer and its own input.",
        normalisation="means over the samples with ‖x‖ > 0; with T tokens σ_min(X) takes the place of ‖x‖",
        can_tell="Which step is loose: directions (A–B), differences between samples (B–C), other parameters (C–D).",
        cannot_tell=LOOSE,
        contradictions="The paper finds D negatively correlated with A in some experiments.",
    ),
    _card(
        id="sensitivity.bounds",
        title="Bounds of volume and sensitivity by sharpness",
        meaning="The paper's inequalities, both sides measured on this model.",
        formula="3.4: mean volume ≤ (1/n)√(Σ ‖W‖₂^{2N}/‖x‖^{2N}) (nS/N)^{N/2}; 3.6: the same over all layers; "
        "3.8: MLS ≤ ‖W‖₂ √mean(1/‖x‖²) √S; 3.10: NMLS ≤ √(mean Σ_l ‖W_l‖₂²/‖x^l‖²) √S; "
        "E.4: input-invariant MLS / d ≤ adaptive sharpness; Eq. 35: Σ_l x̄_l MLS_l ≤ matrix-normalised sharpness",
        source=f"{PAPER}, Prop. 3.4, 3.6, 3.8, 3.10, E.4, Eq. 35",
        variant="Volumes in logarithms; N is the number of scores, d the first layer's outputs; the root in Eq. 11 "
        "covers the sum only. Where ‖x‖ = 0, a pair of layer and sample is left out of both sides, counted. ‖W‖₂ is "
        "the layer's own; the authors' code takes it over all layers.",
        can_tell="That the numbers are consistent: a bound that breaks is a fault, not a finding.",
        cannot_tell=f"{LOOSE} The right sides of 3.4 and 3.6 grow with the number of samples.",
    ),
    Card(
        id="sensitivity.degenerate_inputs",
        title="Inputs that no bound speaks of",
        meaning="Samples whose input at this layer is zero, or whose tokens are linearly dependent.",
        formula="number of i with ‖x_i‖ = 0, or σ_min(X_i) = 0 for several tokens",
        source="counting",
        can_tell="Layers whose neurons before them are all silent on some samples.",
    ),
    _card(
        id="sensitivity.mean_rank",
        title="Mean rank of the local map",
        meaning="In how many directions the scores can move at all around a sample, on average.",
        formula="mean_i rank ∂f/∂x(x_i)",
        source="counting",
        variant="The same threshold as rank_deficient_samples.",
        cannot_tell="Nothing about how far they move: see dimensionality.",
    ),
    _card(
        id="sensitivity.skip",
        title="The bound at a skip connection",
        meaning="Where a layer's input also goes on past it, what the skip carries is taken off first.",
        formula="mean ‖∂f/∂x‖₂ − mean ‖∂f/∂x − J W‖₂ ≤ mean ‖W‖₂ ‖∇_W f‖_F/‖x‖",
        source=f"{PAPER}, appendix A, Eq. 17",
        variant="Exact for any number of ways past the layer; present only where some lead on from its input.",
        normalisation="means over the samples with ‖x‖ > 0",
        can_tell="How much of the sensitivity runs through the layer.",
        cannot_tell=LOOSE,
    ),
)
COMPARED = (
    Compared("network.sensitivity.sharpness", "Sharpness S(θ) of the scores", "sensitivity", of_weights=True),
    Compared("network.sensitivity.mls", "Sensitivity to the input (MLS)", "sensitivity"),
    Compared("network.sensitivity.mean_log_volume_centred", "Local volume, logarithm", "sensitivity"),
    Compared("network.sensitivity.dimensionality", "Local dimensionality", "sensitivity"),
)
