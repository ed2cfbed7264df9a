"""Definition cards of the activity–weight decomposition."""

from __future__ import annotations

from audit.report.fields import Card, Compared

PAPER = "Feng & Tu, The activity-weight duality in feed forward neural networks (2022)"

CARDS: tuple[Card, ...] = (
    Card(
        id="duality.gap",
        title="Gap over pairs",
        meaning="How much more a test sample costs than its nearest train sample of the same label, on average.",
        formula="⟨Δl_k⟩ = ⟨l(w, x′_k) − l(w, x_k)⟩ = Σ_n cov(g_n, w_n) + Σ_n ⟨g_n⟩⟨w_n⟩",
        source=f"{PAPER}, Eqs. 8–9",
        variant=(
            "Partner: nearest train sample, Euclidean, same label, in input space (--partner-space features: in "
            "the layer's own input, for a convolution its patches); regression: whatever its target. Test samples "
            "without a partner, and pairs whose train partner reaches the layer as zero, are left out and counted."
        ),
        normalisation="Mean over pairs; losses in nats, or half the squared error.",
        can_tell="Nothing beyond the measured losses: the sum over directions equals it identically.",
        cannot_tell="It predicts nothing. The information is in how it splits.",
        contradictions=(
            "The paper checks the sum against the gap as evidence; it is an identity for every orthonormal basis."
        ),
        covers=("duality.carriers", "duality.ci95.gap"),
    ),
    Card(
        id="duality.max_residual",
        title="Is the duality exact here?",
        meaning="Every train partner is really run with its dual weights; its loss must be that of the test sample.",
        formula="max_k |l(w*_k, x_k) − l(w, x′_k)|,  w* = w + ΔW,  ΔW = (W Δx) xᵀ/‖x‖²  (tokens: W ΔX X⁺)",
        source=f"{PAPER}, Eqs. 1–6",
        variant=(
            "Float64; a layer is decomposed only if the difference is at most 1e-9 of the largest loss (or of 1). A "
            "convolution (--conv) acts on its patches as on tokens; where they are linearly dependent, ΔW is the "
            "least-squares fit, the layer is called approximate, and the error stands beside its decomposition: the "
            "largest, the mean, and the mean over the mean |Δl|."
        ),
        can_tell="Whether a change of this layer's weights alone can stand for a change of the sample.",
        cannot_tell="Anything about a layer that is bypassed or used twice: there the equality does not hold.",
    ),
    Card(
        id="duality.sigma_g",
        title="Sharpness along a direction",
        meaning="How much the loss changes per unit step of the weights along the direction, from sample to sample.",
        formula="σ_g,n = std_k (g_k·e_n),  g_k = Δl_k ΔW_k/‖ΔW_k‖²;  H e_n = λ_n e_n",
        source=f"{PAPER}, Eqs. 7 and 9",
        variant=(
            "e_n: orthonormal eigenvectors of the Hessian of the mean train loss in this layer's weights; all of "
            "them up to 4,096 weights, else the leading ones: found by iteration to ‖H e − λ e‖ of 1e-6 of the largest "
            "|λ| and 2e-5 of their own, no eigenspace cut in two unless it is more than half of what is asked for. "
            "Eigenvalues within 1e-10 of the largest are one eigenspace, turned so that Cov(g) is diagonal there. "
            "Ordered by σ_g."
        ),
        normalisation="Deviation with division by the number of pairs.",
        can_tell="Which directions of the weights are steep for unseen samples.",
        cannot_tell="It grows when the layer's weights are scaled down: compare it with σ_w, not between networks.",
        contradictions="The published code uses a non-symmetric eigensolver, whose basis is not orthonormal.",
    ),
    Card(
        id="duality.sigma_w",
        title="Size along a direction",
        meaning="How far exchanging train for test samples would move the weights along the direction.",
        formula="σ_w,n = std_k (ΔW_k·e_n);  S_w,n = Σ_{i≤n} σ_w,i;  T_w = ⟨‖ΔW‖²⟩ − ‖⟨ΔW⟩‖²",
        source=f"{PAPER}, Eqs. 6, 9 and 12, Figs. 2–3",
        variant="Eq. 12 as printed is the second moment ⟨‖ΔW‖²⟩ and stands beside T_w.",
        can_tell="The size of the solution, weighed with how much the samples differ.",
        cannot_tell="It grows with the scale of the layer's weights: only its product with σ_g is free of it.",
    ),
    Card(
        id="duality.contribution",
        title="A direction's part of the gap",
        meaning="What the direction adds to the gap: steepness times reach, as far as the two go together.",
        formula="ΔL_n = cov_k(g_n, w_n) = c_n σ_g,n σ_w,n",
        source=f"{PAPER}, Eqs. 10–11",
        variant="Taken as the covariance itself; c_n is null where one of the two does not vary.",
        can_tell="Whether the gap sits in few directions or in many.",
        cannot_tell="Which directions would help: a contribution is not a gradient of the gap.",
        contradictions="The paper has 0 ≤ c_n ≤ 1; small negative values do occur.",
    ),
    Card(
        id="duality.sharp",
        title="Sharp and flat share",
        meaning="How much of the gap comes from the few steepest directions, and how much from all the others.",
        formula="ΔL_s = Σ_{n≤n_s} ΔL_n,  ΔL_f = Σ_{n>n_s} ΔL_n;  share of ΔL_s + ΔL_f",
        source=f"{PAPER}, section 4 and Fig. 3",
        variant=(
            "n_s: steepest relative drop of σ_g where its cumulative variance is between 30 % and 70 %; a drop "
            "below 15 % is no elbow, and n_s is where half of the variance is. `fixed` is the split at the number"
            " of classes, for comparisons. Intervals: bootstrap over pairs with directions and n_s held fixed."
        ),
        can_tell=(
            "Smaller steps or larger batches in training raise the sharp part; wrong labels raise the flat part "
            "and wipe out the elbow."
        ),
        cannot_tell="It depends on the parametrisation: unchanged by rescaling whole layers, not by rescaling neurons.",
        contradictions=(
            "More than half of the gap from the 10 sharpest directions was 39 % when measured at the paper's own "
            "setting; the published code computes n_s and then sets it to 10."
        ),
        covers=("duality.flat", "duality.fixed", "duality.ci95", "duality.remainder"),
    ),
    Card(
        id="duality.total_g",
        title="Totals",
        meaning="Steepness and reach over all directions, without any eigenvector, beside the Hessian's trace.",
        formula="T_g = ⟨Δl²/‖ΔW‖²⟩ − ‖⟨g⟩‖²,  T_w = ⟨‖ΔW‖²⟩ − ‖⟨ΔW⟩‖²,  T_h = Tr H",
        source=f"{PAPER}, Fig. 2",
        can_tell="The scale of the two factors for the layer as a whole.",
        cannot_tell="T_g and T_h follow the train loss: do not compare models that are trained to different losses.",
    ),
    Card(
        id="duality.widths",
        title="Flatness width",
        meaning="How far the weights can move along a direction until the train loss has doubled, both sides together.",
        formula="F_n = t₊ − t₋,  t± the first points outwards where L(w + t e_n) rises through 2 L(w)",
        source=f"{PAPER}, Fig. S4",
        variant=(
            "For the leading directions, on at most 1,000 evenly spaced train samples (a convolution's: 200); "
            "outwards in doubling steps, then to 1e-6. Not defined where the train loss is exactly zero."
        ),
        can_tell="The width of the valley at a finite distance, where curvature is local.",
        cannot_tell="It grows with the train loss itself, since the loss has to double.",
    ),
)

COMPARED = (
    Compared(
        "layers.*.duality.fixed.share",
        "share of the gap in its steepest directions",
        "duality",
        "share",
        of_weights=True,
    ),
)
