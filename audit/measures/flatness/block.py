"""What the flatness measure reports of a layer and of the network: Petzka et al.'s Table 1 and its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.fields import Interval, says


@dataclass(frozen=True)
class LayerFlatness:
    """Curvature of the mean train loss in one layer's weights. Intervals are 95 %, over train samples."""

    weight_norm_squared: float = says("‖W‖², Frobenius")
    lambda_max: float | None = says("largest eigenvalue of the Hessian", default=None)
    lambda_max_residual: float | None = says("‖H v − λ v‖ / λ of the eigenvector found", default=None)
    lambda_max_ci95: Interval = says(
        "bootstrap of vᵀ H v over samples, with the eigenvector v held fixed", default=None
    )
    trace: float | None = says("trace of the Hessian", default=None)
    trace_ci95: Interval = None
    kappa: float | None = says("‖W‖² lambda_max", default=None)
    kappa_ci95: Interval = says("‖W‖² lambda_max_ci95", default=None)
    kappa_tau: float | None = says("‖W‖² trace", default=None)
    kappa_tau_ci95: Interval = None
    rho: float | None = says("largest of rho_neurons", default=None)
    rho_ci95: Interval = says("bootstrap over samples, with that neuron held fixed", default=None)
    rho_sigma: float | None = says("sum of rho_neurons", default=None)
    rho_sigma_ci95: Interval = None
    rho_neurons: list[float] = says("row reading: neuron j's incoming weights w_jᵀ H_jj w_j", default_factory=list)
    rho_neurons_std: list[float] = says("standard errors of rho_neurons, over samples", default_factory=list)
    rho_columns: float | None = says("largest of rho_column_neurons", default=None)
    rho_columns_ci95: Interval = says("bootstrap over samples, with that neuron held fixed", default=None)
    rho_columns_sigma: float | None = says("sum of rho_column_neurons", default=None)
    rho_columns_sigma_ci95: Interval = None
    rho_column_neurons: list[float] = says("column reading: input i's outgoing weights", default_factory=list)
    rho_column_neurons_std: list[float] = says(
        "standard errors of rho_column_neurons, over samples", default_factory=list
    )
    relative_flatness: float | None = says("Σ over pairs of neurons of ⟨w_s, w_s'⟩ Tr H_ss' (2021)", default=None)
    relative_flatness_ci95: Interval = None
    hessian: str | None = says(
        "exact; gauss-newton where the network allows no second derivative; estimated where the curvature of the "
        "network after the layer was probed with random signs",
        default=None,
    )
    form: str = says("exact: over all captured train samples; sampled: estimated, with its errors", default="exact")
    samples: int | None = says("train samples behind sampled numbers", default=None)
    columns: int | None = says("columns of the Hessian's root behind a sampled lambda_max", default=None)
    lambda_max_bounds: Interval = says(
        "of a sampled lambda_max: the largest eigenvalue is no smaller than the first and, up to the error of the "
        "trace, no larger than the second",
        default=None,
    )
    notes: list[str] = says("what a reader must know about these numbers", default_factory=list)
    skipped: str | None = says("why this layer has no numbers", default=None)


@dataclass(frozen=True)
class NetworkFlatness:
    """Maxima and sums over the measured dense layers."""

    kappa_max: float | None = says("largest kappa of a layer", default=None)
    kappa_max_ci95: Interval = says("largest within each draw; each layer's eigenvector held fixed", default=None)
    kappa_sum: float | None = None
    kappa_sum_ci95: Interval = None
    kappa_tau_max: float | None = None
    kappa_tau_max_ci95: Interval = None
    kappa_tau_sum: float | None = None
    kappa_tau_sum_ci95: Interval = None
    rho_max: float | None = says("largest rho of a neuron, row reading", default=None)
    rho_max_ci95: Interval = says("largest within each draw; each layer's neuron held fixed", default=None)
    rho_sum: float | None = says("sum over layers of rho_sigma, row reading", default=None)
    rho_sum_ci95: Interval = None
    rho_columns_max: float | None = None
    rho_columns_max_ci95: Interval = None
    rho_columns_sum: float | None = None
    rho_columns_sum_ci95: Interval = None
    relative_flatness_sum: float | None = None
    relative_flatness_sum_ci95: Interval = None
    lambda_max: float | None = says("largest lambda_max of a layer: for comparison, not invariant", default=None)
    lambda_max_ci95: Interval = None
    lambda_max_sum: float | None = None
    lambda_max_sum_ci95: Interval = None
    trace_max: float | None = None
    trace_max_ci95: Interval = None
    trace_sum: float | None = says("sum of the layers' traces: for comparison, not invariant", default=None)
    trace_sum_ci95: Interval = None
    layers: list[str] = says("the layers that these numbers are over", default_factory=list)
    form: str = says("exact: over all captured train samples; sampled: estimated, with its errors", default="exact")
    samples: int | None = says("train samples behind sampled numbers", default=None)
    bootstrap: int = says("draws behind each bootstrap interval", default=0)
    notes: list[str] = says("what a reader must know about these numbers", default_factory=list)
    skipped: str | None = says("why there are no numbers", default=None)
