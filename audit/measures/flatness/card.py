"""Definition cards of the flatness measure: what each number is, and what it can and cannot tell."""

from __future__ import annotations

from functools import partial

from audit.report.fields import Card, Compared

PAPER = "Petzka, Adilova, Kamp & Sminchisescu, A reparameterization-invariant flatness measure (2019)"
LATER = "Petzka, Kamp, Adilova, Sminchisescu & Boley, Relative flatness and generalization (2021)"
FOLLOWS_LOSS = (
    "Hessian-based numbers follow the train loss: on small MNIST networks, over train losses from 4e-2 to 5e-5, Tr H "
    "fell 100-fold and κ 70-fold while the generalization gap doubled. Compare models at the same train loss and on "
    "the same data only; across train sets of different size nearly every flatness measure ranks models wrongly."
)
AT_MATCHED_LOSS = (
    "Between models with the same data and the same train loss, smaller tends to go with a smaller gap (correlation "
    "about 0.65 to 0.8 over 110 small networks, with wide intervals)."
)
NO_RANKING = (
    "Which of the flatness measures is the better predictor: their intervals overlap. Nothing across train losses."
)
LAYER_WISE = (
    "Unchanged by multiplying a layer by a factor and the next by its inverse, not by doing so neuron by neuron."
)
NEURON_WISE = "Unchanged by rescaling layers and, in ReLU networks, single neurons against each other."
HESSIAN = (
    "Hessian of the mean loss with respect to this layer's weight matrix alone, without its bias; the full second "
    "derivative, with the curvature of the network after the layer, unless `hessian` says otherwise."
)
MEAN = "mean over the captured train samples; not divided by the number of weights"

_card = partial(Card, source=f"{PAPER}, Table 1", normalisation=MEAN, contradictions=FOLLOWS_LOSS)
_number = partial(_card, can_tell=AT_MATCHED_LOSS, cannot_tell=NO_RANKING)

CARDS: tuple[Card, ...] = (
    _card(
        id="flatness.weight_norm_squared",
        title="Squared weight norm",
        meaning="How large the layer's weights are.",
        formula="‖W‖² = Σ_jk W_jk²",
        variant="Frobenius, squared. Some published code uses ‖W‖, which gives up the invariance that κ is made for.",
        normalisation="none",
        can_tell="The scale that κ and κ_τ take out of the Hessian.",
        cannot_tell="Anything by itself: in a ReLU network it can be moved freely between layers.",
        contradictions="",
    ),
    _card(
        id="flatness.lambda_max",
        title="Largest Hessian eigenvalue",
        meaning="How strongly the train loss is curved in the sharpest direction of the layer's weights.",
        formula="λ_max(H), H = ∂²L/∂vec(W)²",
        variant=f"{HESSIAN} Algebraically largest; by eigh or Lanczos, to an estimated relative error of 1e-7. Its "
        "interval resamples vᵀ H v over the samples with the eigenvector v held fixed. Network: the largest of the "
        "layers, and lambda_max_sum. Where all samples are too many: of the Hessian's columns of most energy; "
        "lambda_max_bounds hold the true one, since what is left out has no negative curvature.",
        can_tell="The largest step at which plain gradient descent would not diverge along that direction, 2/λ_max.",
        cannot_tell="Rescaling layers changes it though not the network (Dinh et al. 2017): for comparison.",
    ),
    _card(
        id="flatness.trace",
        title="Hessian trace",
        meaning="How strongly the train loss is curved over all directions of the layer's weights together.",
        formula="Tr H = mean_i ‖x_i‖² tr S_i, S = ∂²l/∂z²; over tokens mean_i Σ_tt' (x_t·x_t') tr S^tt'",
        variant=f"{HESSIAN} Exact, without random probes, cross terms between tokens included. Where all samples are "
        "too many: from backward passes with random signs, unbiased, of the Gauss–Newton part; residual_trace says "
        "on a few samples how much that part leaves out.",
        covers=("flatness.residual_trace", "flatness.residual_trace_ci95"),
        can_tell="The mean rise of the loss under small random noise on the weights: ½ σ² Tr H.",
        cannot_tell="Rescaling layers changes it though not the network (Dinh et al. 2017): for comparison.",
    ),
    _number(
        id="flatness.kappa",
        title="κ",
        meaning="Sharpest curvature of the layer, made independent of the layer's scale.",
        formula="κ^l = ‖W_l‖² λ_max(H_l); network: κ^max = max_l κ^l, κ^Σ = Σ_l κ^l",
        source=f"{PAPER}, Definition 1, Theorem 2 and Table 1",
        variant=f"{HESSIAN} {LAYER_WISE}",
    ),
    _number(
        id="flatness.kappa_tau",
        title="κ_τ",
        meaning="Total curvature of the layer, made independent of the layer's scale.",
        formula="κ_τ^l = ‖W_l‖² Tr H_l; network: κ_τ^max = max_l κ_τ^l, κ_τ^Σ = Σ_l κ_τ^l",
        variant=f"{HESSIAN} {LAYER_WISE}",
    ),
    _number(
        id="flatness.rho",
        title="ρ",
        meaning="How strongly the loss is curved when one neuron's incoming weights are stretched: the worst neuron.",
        formula="ρ^l(j) = w_jᵀ H_jj w_j = mean_i S_jj (w_j·x)²; ρ^l = max_j ρ^l(j); network: ρ^max = max_l ρ^l",
        source=f"{PAPER}, Appendix B and Table 1",
        variant="Rows of W, the incoming weights of neuron j, as the paper's words say. Its proof takes columns: see "
        f"rho_columns. {NEURON_WISE} The interval is that of the neuron found largest, as if chosen beforehand.",
    ),
    _number(
        id="flatness.rho_sigma",
        title="ρ_σ",
        meaning="The same, added up over the layer's neurons.",
        formula="ρ_σ^l = Σ_j ρ^l(j); network: ρ^Σ = Σ_l ρ_σ^l",
        source=f"{PAPER}, Appendix B and Table 1",
        variant=f"Rows of W. {NEURON_WISE}",
    ),
    _number(
        id="flatness.rho_neurons",
        title="ρ of every neuron",
        meaning="Which neurons' incoming weights the train loss is most sensitive to.",
        formula="ρ^l(j) = mean_i S_jj (w_j·x)², j = 1 … out",
        source=f"{PAPER}, Appendix B and Table 1",
        variant=f"Rows of W. {NEURON_WISE}",
    ),
    _number(
        id="flatness.rho_columns",
        title="ρ, column reading",
        meaning="How strongly the loss is curved when the weights that leave one input of the layer are stretched.",
        formula="ρ^l(k) = mean_i x_k² w_:kᵀ S w_:k; maximum, sum (rho_columns_sigma) and every k (rho_column_neurons)",
        source=f"{PAPER}, proof of Theorem 3 (B.1)",
        variant=f"Columns of W, as in the paper's proof. {NEURON_WISE}",
    ),
    _number(
        id="flatness.relative_flatness",
        title="Relative flatness",
        meaning="Total curvature weighted by the inner products of the neurons' weights: the authors' later measure.",
        formula="κ_Tr^l = Σ_ss' ⟨w_s, w_s'⟩ Tr H_ss' = mean_i ‖x_i‖² tr(Wᵀ S_i W)",
        source=f"{LATER}, Definition 3",
        variant="Every layer is reported; the paper's bound is about one layer whose input is the representation. "
        "Unchanged by scaling neurons' incoming weights (rows), not by scaling inputs (columns).",
    ),
)
COMPARED = (
    Compared("network.flatness.kappa_tau_sum", "Flatness κ_τ, all layers", "flatness", of_weights=True),
    Compared("network.flatness.kappa_sum", "Flatness κ, all layers", "flatness", of_weights=True),
    Compared("network.flatness.rho_sum", "Flatness ρ, all neurons", "flatness", of_weights=True),
    Compared("network.flatness.relative_flatness_sum", "Relative flatness, all layers", "flatness", of_weights=True),
    Compared("network.flatness.trace_sum", "Trace of the Hessian, all layers", "flatness", of_weights=True),
    Compared("network.flatness.lambda_max", "Largest eigenvalue of the Hessian", "flatness", of_weights=True),
)
