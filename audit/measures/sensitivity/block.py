"""What the report says about sensitivity and volume: per layer and for the network."""

from __future__ import annotations

from dataclasses import dataclass, field

from audit.report.fields import Interval, says


@dataclass(frozen=True, kw_only=True)
class SkipForm:
    """Eq. 17 at a layer whose input also goes on another way: what the skip carries is taken off the left side."""

    total_mls: float = says("mean ‖∂f/∂x‖₂ over all ways that lead on from the layer's input")
    skip_mls: float = says("mean ‖∂f/∂x − J W‖₂: over the ways that pass the layer by")
    left: float = says("their difference")
    right: float = says("mean of ‖W‖₂ ‖∇_W f‖_F / ‖x‖₂")
    holds: bool
    left_out: int = says("samples without a right side, since ‖x‖ = 0 or the tokens are linearly dependent", default=0)


@dataclass(frozen=True, kw_only=True)
class LayerSensitivity:
    """How strongly the scores answer to one dense layer's input, through that layer. Train samples; 95 % bootstrap."""

    mls: float | None = says("mean ‖J W‖₂: the strongest answer of the scores to a unit change of the layer's input")
    mls_ci95: Interval
    mean_log_volume: float | None = says("mean of ½ ln det(J W Wᵀ Jᵀ) over the samples of full rank")
    mean_log_volume_ci95: Interval
    log_mean_volume: float | None = says("ln of the mean volume over all samples; a rank-deficient one counts as 0")
    log_mean_volume_ci95: Interval
    rank_deficient_samples: int | None = says("samples where J W has a rank below the number of scores")
    weight_spectral_norm: float = says("‖W‖₂, the largest singular value of the weights")
    sharpness: float | None = says("mean ‖∇_W f‖_F², weights only")
    sharpness_ci95: Interval
    degenerate_inputs: int = says("samples with ‖x‖ = 0, or with linearly dependent tokens: no bound speaks of them")
    units_active: list[int] = says(
        "for each output of the layer: train samples on which a change of it moves some score; 0: it never does",
        default_factory=list,
    )
    skip: SkipForm | None = says("present where the layer's input also goes on another way", default=None)
    form: str = says("exact: over all captured train samples; sampled: over some of them", default="exact")
    samples: int | None = says("train samples behind sampled numbers", default=None)
    skipped: str | None = says("why some numbers above are null", default=None)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A ≤ B ≤ C ≤ D of Eq. 48: the three steps from the sensitivity to the bound of Prop. 3.8."""

    A: float = says("mean ‖J W‖₂")
    B: float = says("‖W‖₂ times the mean of ‖∇_W f‖_F / ‖x‖")
    C: float = says("‖W‖₂ √(mean 1/‖x‖²) √(mean ‖∇_W f‖_F²)")
    D: float = says("‖W‖₂ √(mean 1/‖x‖²) √S(θ), the right side of Prop. 3.8")


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One inequality of the paper, both sides measured."""

    id: str = says("prop-3.4, prop-3.6, prop-3.8, prop-3.10, prop-e.4 or eq-35")
    left: float | None
    right: float | None
    log: bool = says("true where both sides are natural logarithms")
    holds: bool | None
    tightness: float | None = says("left over right, logarithms taken back: 1 is tight, near 0 is loose")
    middle: float | None = says("the paper's term between both sides, where it has one", default=None)
    about: str = says("the input that the inequality is about", default="")
    left_out: int = says("(layer, sample) pairs that the inequality does not speak of", default=0)
    error: float | None = says(
        "how far the two sides' difference may be off (95 %) where they are sampled; closer ones are not judged",
        default=None,
    )
    skipped: str | None = says("why a side is null, or why it cannot be judged", default=None)


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of samples between edges."""

    edges: list[float] = says("where one column ends and the next begins")
    counts: list[int] = says("samples in each column")


@dataclass(frozen=True, kw_only=True)
class NetworkSensitivity:
    """How strongly, and in how many directions, the scores answer to the input. Train samples; 95 % bootstrap."""

    sharpness: float = says("S(θ) = mean ‖∇_θ f‖_F² over all parameters (Eq. 3)")
    sharpness_ci95: Interval
    sharpness_trace: float | None = says("Tr H of ½‖f − y‖² over all parameters, exact; null where it is not to be had")
    sharpness_trace_skipped: str | None
    sharpness_trace_ci95: Interval = None
    mls: float | None = says("mean ‖∂f/∂x‖₂ over the train samples, x the model's input")
    mls_ci95: Interval
    nmls: float | None = says("sum over the dense layers of mean ‖J W‖₂")
    nmls_ci95: Interval
    mean_log_volume: float | None = says("mean of ½ ln det(∂f/∂x ∂f/∂xᵀ) over the samples of full rank")
    mean_log_volume_ci95: Interval
    log_mean_volume: float | None = says("ln of the mean volume over all samples; a rank-deficient one counts as 0")
    log_mean_volume_ci95: Interval
    log_network_volume: float | None = says("ln of the sum over the dense layers of their mean volumes")
    log_network_volume_ci95: Interval
    mean_log_volume_centred: float | None = says("as mean_log_volume, on the C−1 dimensions orthogonal to (1, …, 1)")
    mean_log_volume_centred_ci95: Interval
    rank_deficient_samples: int | None = says("samples where ∂f/∂x has a rank below the number of scores")
    rank_deficient_samples_centred: int | None
    mean_rank: float | None = says("mean rank of ∂f/∂x")
    mean_rank_ci95: Interval = None
    dimensionality: float | None = says("mean participation ratio (Σλ)²/Σλ² of the eigenvalues of ∂f/∂x ∂f/∂xᵀ")
    dimensionality_ci95: Interval
    adaptive_sharpness: float = says("mean Σ_j θ_j² ‖∂f/∂θ_j‖² over all parameters (Eq. 41)")
    adaptive_sharpness_ci95: Interval
    adaptive_sharpness_sampled: float | None = says("Eq. 38 with random changes of the weights, if asked for")
    adaptive_sharpness_sampled_std: float | None = says("standard error over the draws")
    input_invariant_mls: float | None = says("mean Σ_p x_p² ‖∂f/∂x_p‖² (Eq. 43)")
    input_invariant_mls_ci95: Interval
    normalized_mls: float | None = says("mean ‖x‖² ‖∂f/∂x‖₂² (Definition F.1)")
    normalized_mls_ci95: Interval
    matrix_normalized_sharpness: float | None = says("Σ_l ‖W_l‖₂ √(mean ‖∇_{W_l} f‖_F²) over the dense layers (Eq. 35)")
    matrix_normalized_sharpness_ci95: Interval
    chain: Chain | None
    bounds: list[Bound] = field(default_factory=list)
    bounds_input: str = says("the input that the chain and the bounds of a first layer are about", default="")
    parameters: int = says("parameters behind sharpness", default=0)
    parameters_beyond_dense: int = says("of these, held by no dense layer alone: per-sample gradients", default=0)
    histogram: Histogram | None = says("‖∂f/∂x‖₂ over the samples", default=None)
    form: str = says(
        "exact: over all captured train samples; sampled: over some of them, and by random signs where parameters are "
        "concerned",
        default="exact",
    )
    samples: int | None = says("train samples behind sampled numbers", default=None)
    sign_samples: int | None = says("train samples behind those by random signs", default=None)
    norm_error: float | None = says(
        "largest relative error of a sample's ‖∂f/∂x‖₂ or ‖J W‖₂ where these are found by iteration", default=None
    )
    skipped: str | None = says("why some numbers above are null", default=None)
