"""What the report says about the Fisher information: per layer and for the network."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.conduct import Form
from audit.report.fields import Interval, says


@dataclass(frozen=True, kw_only=True)
class LayerFisher:
    """ln det of the Fisher information over one layer's own weights and bias."""

    gamma: float | None = says("mean over subsets of ln det ξ, with gradients of this layer's parameters only")
    gamma_std: float | None = says("standard deviation over subsets")
    gamma_ci95: Interval = says("95 % interval: bootstrap over subsets; of a sampled form, by its standard error")
    singular_subsets: int = says("subsets whose gradients are linearly dependent: left out, since ln det is −∞ there")
    skipped: str | None = says("why gamma is null", default=None)


@dataclass(frozen=True, kw_only=True)
class PacBayes:
    """Theorem 1, with the neighbourhood's volume chosen, not known."""

    bound: float = says("train loss + 2 √((2 L₀ + 2 A + ln(2N/δ)) / (N − 1))")
    volume: float = says("V, the volume of the neighbourhood; a free choice")
    delta: float = says("the bound fails with at most this probability, if its assumptions hold")
    complexity: float = says("A = V^{2/P} π^{1/P} e^{γ̂/N′} / (4πe): the Fisher information's own term")
    vacuous: bool = says("true where the bound exceeds the loss of guessing, ln C, so that it says nothing")
    exceeded: bool = says("true where the measured test loss is above the bound: its assumptions do not hold here")
    caveat: str = says("why the bound must not be quoted as a promise")
    bound_ci95: Interval = says("bootstrap of the train loss over samples and of γ̂ over subsets", default=None)
    complexity_ci95: Interval = says("bootstrap of γ̂ over subsets", default=None)


@dataclass(frozen=True, kw_only=True)
class NetworkFisher:
    """ln det of the Fisher information over all parameters, from subsets of the train samples."""

    subsets: int = says("subsets of train samples that were drawn")
    subset_size: int = says("train samples in each of them")
    subsets_sha256: str = says("of the drawn sample positions: two runs with the same value used the same subsets")
    singular_subsets: int
    parameters: int = says("P, all parameters: dense, convolution, norm, embedding")
    form: Form = says("sampled: from subsets of one pool of train samples", default="exact")
    pool: int = says("distinct train samples behind a sampled γ̂; 0 where it is exact", default=0)
    note: str | None = says("what a sampled γ̂ and its interval rest on", default=None)
    normalized_logits: bool = says("whether the logits were divided by 0.04 ‖logits‖ first (section 7.2.3)")
    gamma: float | None = says("γ̂ = mean over subsets of ln det ξ, ξ = Gram matrix of loss gradients", default=None)
    gamma_std: float | None = says("standard deviation over subsets", default=None)
    gamma_ci95: Interval = says(
        "95 % interval: bootstrap over subsets; of a sampled form, by its standard error", default=None
    )
    gamma_norms: float | None = says("the part of γ̂ that is the size of the gradients: mean Σ ln ‖g_i‖²", default=None)
    gamma_norms_std: float | None = says("standard deviation over subsets", default=None)
    gamma_angles: float | None = says("the rest: ln det of the gradients' cosines, 0 if orthogonal", default=None)
    gamma_angles_std: float | None = says("standard deviation over subsets", default=None)
    gamma_full: float | None = says("γ = (P/N′) γ̂ − P ln P, extrapolated to all P parameters (Eq. 7)", default=None)
    gamma_full_ci95: Interval = says("γ at the ends of gamma_ci95", default=None)
    robustness: float | None = says("mean ‖∂softmax/∂input‖₂² over the train samples", default=None)
    robustness_ci95: Interval = None
    robustness_skipped: str | None = says("why robustness is null", default=None)
    frobenius_norm: float | None = says("‖ξ‖_F²/N′², mean over subsets", default=None)
    frobenius_norm_std: float | None = None
    frobenius_norm_per_sample: float | None = says("mean ‖g_i‖⁴, as the paper's appendix D computes it", default=None)
    frobenius_norm_per_sample_std: float | None = says("standard deviation over subsets", default=None)
    spectral_radius: float | None = says("λ_max(ξ)/N′, mean over subsets", default=None)
    spectral_radius_std: float | None = None
    pac_bayes: PacBayes | None = says("the bound of Theorem 1", default=None)
    pac_bayes_skipped: str | None = says("why there is no bound", default=None)
    skipped: str | None = says("why numbers above are null", default=None)
