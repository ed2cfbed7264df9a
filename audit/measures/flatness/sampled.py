"""Flatness where all samples are too many: the same numbers from random signs and from columns of most energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.curvature.sampled import SampledCurvature
from audit.maths.gram import ColumnPairs
from audit.maths.shares import Z95
from audit.measures.flatness.block import LayerFlatness, NetworkFlatness
from audit.network.layers import DenseLayer
from audit.network.random_signs import Estimate, LayerForms
from audit.report.fields import Interval

GAUSS_NEWTON = "gauss-newton"
CURVED = (
    "the network after this layer is curved: these numbers are of the Gauss–Newton part of the Hessian, which leaves "
    "that curvature out"
)


def sampled_layer(curvature: SampledCurvature, layer: DenseLayer, curved: bool) -> LayerFlatness:
    """One layer's numbers, each with its interval or bounds."""
    forms = curvature.sums.layers[layer.name]
    pairs = curvature.pairs(layer, 1)
    norm2 = float(layer.weight(curvature.capture.network).double().square().sum())
    low = float(pairs.values[0]) if len(pairs.values) else 0.0
    trace = float(forms.trace.value)
    return LayerFlatness(
        weight_norm_squared=norm2,
        lambda_max=low,
        lambda_max_bounds=_bounds(forms, pairs, low),
        trace=trace,
        trace_ci95=_interval(forms.trace),
        kappa=norm2 * low,
        kappa_tau=norm2 * trace,
        kappa_tau_ci95=_interval(forms.trace, norm2),
        rho=float(forms.rows.value.max()),
        rho_ci95=_interval(_largest(forms.rows)),
        rho_sigma=float(forms.all_rows.value),
        rho_sigma_ci95=_interval(forms.all_rows),
        rho_neurons=forms.rows.value.tolist(),
        rho_neurons_std=forms.rows.error.tolist(),
        rho_columns=float(forms.columns.value.max()),
        rho_columns_ci95=_interval(_largest(forms.columns)),
        rho_columns_sigma=float(forms.all_columns.value),
        rho_columns_sigma_ci95=_interval(forms.all_columns),
        rho_column_neurons=forms.columns.value.tolist(),
        rho_column_neurons_std=forms.columns.error.tolist(),
        relative_flatness=float(forms.relative.value),
        relative_flatness_ci95=_interval(forms.relative),
        hessian=GAUSS_NEWTON if curved else "exact",
        form="sampled",
        samples=forms.trace.samples,
        columns=len(pairs.columns),
        notes=[CURVED] if curved else [],
    )


def sampled_network(
    blocks: Mapping[str, LayerFlatness], summed: Sequence[str], total: Estimate, notes: list[str]
) -> NetworkFlatness:
    """Maxima over the layers `summed`, and their sums as they came out in each draw."""
    layers = [blocks[name] for name in summed]

    def largest(name: str) -> tuple[float, Interval]:
        best = max(layers, key=lambda block: getattr(block, name))
        return getattr(best, name), getattr(best, f"{name}_ci95")

    (kappa_tau_max, of_kappa_tau), (rho_max, of_rho) = largest("kappa_tau"), largest("rho")
    (rho_columns_max, of_columns), (trace_max, of_trace) = largest("rho_columns"), largest("trace")
    kappa_tau, trace, relative, rows, columns = (total[place] for place in range(5))
    return NetworkFlatness(
        kappa_max=max(block.kappa or 0.0 for block in layers),
        kappa_sum=sum(block.kappa or 0.0 for block in layers),
        kappa_tau_max=kappa_tau_max,
        kappa_tau_max_ci95=of_kappa_tau,
        kappa_tau_sum=float(kappa_tau.value),
        kappa_tau_sum_ci95=_interval(kappa_tau),
        rho_max=rho_max,
        rho_max_ci95=of_rho,
        rho_sum=float(rows.value),
        rho_sum_ci95=_interval(rows),
        rho_columns_max=rho_columns_max,
        rho_columns_max_ci95=of_columns,
        rho_columns_sum=float(columns.value),
        rho_columns_sum_ci95=_interval(columns),
        relative_flatness_sum=float(relative.value),
        relative_flatness_sum_ci95=_interval(relative),
        lambda_max=max(block.lambda_max or 0.0 for block in layers),
        lambda_max_sum=sum(block.lambda_max or 0.0 for block in layers),
        trace_max=trace_max,
        trace_max_ci95=of_trace,
        trace_sum=float(trace.value),
        trace_sum_ci95=_interval(trace),
        layers=list(summed),
        form="sampled",
        samples=total.samples,
        notes=notes,
    )


def _interval(found: Estimate, factor: float = 1.0) -> Interval:
    value, error = factor * float(found.value), factor * float(found.error)
    return value - Z95 * error, value + Z95 * error


def _largest(found: Estimate) -> Estimate:
    place = int(found.value.argmax())
    return found[place]


def _bounds(forms: LayerForms, pairs: ColumnPairs, low: float) -> Interval:
    """Between the largest eigenvalue of the kept columns, and that plus what was left out (and its own error)."""
    return low, low + pairs.dropped + Z95 * float(forms.trace.error)
