"""Definition cards of the Fisher information's numbers."""

from __future__ import annotations

from audit.report.fields import Card, Compared

SOURCE = "Jia & Su, Information-Theoretic Local Minima Characterization and Regularization (2020)"
CONTRADICTIONS = (
    "Over clean MNIST networks of eleven recipes the correlation of γ̂ with the gap was −0.30 [−0.72, 0.23]: γ̂ was "
    "almost entirely the sum of the log gradient norms, that is, how confidently the train samples are fitted."
)

CARDS = (
    Card(
        id="fisher.gamma",
        title="Fisher determinant γ̂",
        meaning=(
            "How large the gradients of single train samples are, and how much they differ. A low value means small "
            "gradients that largely agree."
        ),
        formula="γ̂ = (1/T) Σ_t ln det ξ^t,  ξ^t_ij = g_i · g_j over the N′ samples of subset t,  g_i = ∇_θ l_i",
        source=f"{SOURCE}, Eq. 6",
        variant=(
            "Gradients of the cross-entropy with the given label, over all parameters; for a regression, of ½‖f − "
            "y‖², the negative log-likelihood of Gaussian noise with variance 1 in each output. Computed as Σ "
            "ln‖g_i‖² plus ln det of the cosines. The authors' code sums the logarithms of singular values, which is "
            "half of this."
        ),
        normalisation=(
            "None: the value depends on N′, so only values with the same N′ and the same samples compare; for a "
            "regression it also depends on the unit of the targets."
        ),
        can_tell=(
            "Between models of one architecture with equal train loss on the same samples: which fits with smaller, "
            "more aligned gradients."
        ),
        cannot_tell="Anything across different train losses, data sets or subset sizes; it has no scale of its own.",
        contradictions=CONTRADICTIONS,
    ),
    Card(
        id="fisher.gamma_full",
        title="Fisher determinant γ, extrapolated to all parameters",
        meaning="What γ̂ would be for the full Fisher information matrix, were its spectrum that of the subsets.",
        formula="γ = (P/N′) γ̂ − P ln P",
        source=f"{SOURCE}, Eq. 7 and appendix C",
        cannot_tell="More than γ̂: it is γ̂ on another scale.",
    ),
    Card(
        id="fisher.robustness",
        title="Robustness of the class probabilities",
        meaning="How strongly the predicted probabilities answer to a small change of the input.",
        formula="mean over train samples of ‖∂softmax(f)/∂x‖₂²",
        variant="A model with one score has two probabilities, p and 1 − p, and both count. A regression has none.",
        source=f"{SOURCE}, section 7.1, after Sokolić et al. (2017)",
        cannot_tell="How well the model generalizes: in the source study it failed to rank the models.",
    ),
    Card(
        id="fisher.frobenius_norm",
        title="Frobenius norm of the Fisher information",
        meaning="The overall size of the curvature as the samples' gradients show it.",
        formula="‖ξ‖_F² / N′², mean over subsets",
        source=f"{SOURCE}, section 7.1",
        variant="The Fisher information's own norm; appendix D computes the mean of ‖g_i‖⁴ (_per_sample).",
    ),
    Card(
        id="fisher.spectral_radius",
        title="Spectral radius of the Fisher information",
        meaning="The curvature along the one direction in which the samples' gradients agree most.",
        formula="λ_max(ξ) / N′, mean over subsets",
        source=f"{SOURCE}, section 7.1",
    ),
    Card(
        id="fisher.pac_bayes.bound",
        title="PAC-Bayes bound of Theorem 1",
        meaning="A loss on unseen data that the theorem would promise if all of its assumptions held.",
        formula="L₀ + 2 √((2 L₀ + 2 A + ln(2N/δ)) / (N − 1)),  A = V^{2/P} π^{1/P} e^{γ̂/N′} / (4πe)",
        source=f"{SOURCE}, Theorem 1",
        variant="The train loss L₀ stands for its mean over the neighbourhood; V and δ are settings.",
        cannot_tell=(
            "A guarantee: cross-entropy is unbounded, the minimum is not isolated, and V is a free choice. A "
            "regression has no bound: the theorem is for a loss between 0 and 1, and a squared error has the unit of "
            "its targets."
        ),
        contradictions="ln(2N/δ) nearly always outweighs the Fisher term, so the bound hardly depends on the model.",
    ),
)
COMPARED = (
    Compared("network.fisher.gamma", "Fisher log-determinant γ̂", "fisher", of_weights=True),
    Compared("network.fisher.robustness", "Slope of the probabilities", "fisher"),
)
