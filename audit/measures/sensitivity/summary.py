"""From per-sample columns to the blocks of the report: means, their intervals, the chain and the bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from audit.maths.resample import Bootstrap, Resampled
from audit.measures.contract import Measurement
from audit.measures.sensitivity.block import Bound, Histogram, LayerSensitivity, NetworkSensitivity
from audit.measures.sensitivity.bounds import Bounds, plain_bound, skip_form
from audit.measures.sensitivity.columns import Array, Columns, InputColumns, LayerColumns
from audit.report.fields import Interval

BINS = 40
NO_INPUT = "the input is made of integers, such as token ids, so there is no derivative with respect to it"
ONE_SCORE = "one of the volumes compares a model's outputs with each other, and this model has only one output"
NO_VOLUME = "no sample has a Jacobian of full rank, so every volume is zero and has no logarithm"


def summarise(columns: Columns, bootstrap: Bootstrap) -> Measurement:
    """The blocks of every layer and of the network."""
    means = _means(columns, bootstrap)
    layers = {layer.layer.name: _layer(layer, means, columns.slack) for layer in columns.layers}
    return Measurement(layers, _network(columns, means))


def _means(columns: Columns, bootstrap: Bootstrap) -> Means:
    """Every column behind a mean, resampled together."""
    plain: dict[Name, Array] = {THETA: columns.samples.theta, ADAPTIVE: columns.samples.adaptive}
    partial = {of_layer(layer, "log_volume"): layer.log_volume for layer in columns.layers}
    for layer in columns.layers:
        plain |= {of_layer(layer, "largest"): layer.largest, of_layer(layer, "gradient"): layer.gradient}
    if columns.trace is not None:
        plain[TRACE] = columns.trace
    if columns.input is not None:
        given = columns.input
        plain |= {of_input(name): getattr(given, name) for name in ("largest", "rank", "normalized", "invariant")}
        partial |= {of_input("log_volume"): given.log_volume, of_input("dimension"): given.dimension}
        if given.log_volume_centred is not None:
            partial[CENTRED] = given.log_volume_centred
    return Means(plain, partial, bootstrap)


def _layer(layer: LayerColumns, means: Means, slack: float) -> LayerSensitivity:
    mls, mls_ci95 = means.mean(of_layer(layer, "largest"))
    mean_log, mean_log_ci95 = means.mean_where_any(of_layer(layer, "log_volume"))
    log_mean, log_mean_ci95 = means.log_mean(of_layer(layer, "log_volume"))
    sharpness, sharpness_ci95 = means.mean(of_layer(layer, "gradient"))
    return LayerSensitivity(
        mls=mls,
        mls_ci95=mls_ci95,
        mean_log_volume=mean_log,
        mean_log_volume_ci95=mean_log_ci95,
        log_mean_volume=log_mean,
        log_mean_volume_ci95=log_mean_ci95,
        rank_deficient_samples=int((~np.isfinite(layer.log_volume)).sum()),
        weight_spectral_norm=layer.spectral_norm,
        sharpness=sharpness,
        sharpness_ci95=sharpness_ci95,
        degenerate_inputs=int((layer.x_norm == 0).sum()),
        units_active=layer.active,
        skip=skip_form(layer, slack),
        skipped=NO_VOLUME if mean_log is None else None,
    )


def _network(columns: Columns, means: Means) -> NetworkSensitivity:
    dense, samples = columns.dense, columns.samples
    at_first = Bounds([columns.first], samples.theta, _about(columns), columns.slack)
    sampled, error = columns.sampled or (None, None)
    return NetworkSensitivity(
        sharpness_trace_skipped=columns.trace_skipped,
        adaptive_sharpness_sampled=sampled,
        adaptive_sharpness_sampled_std=error,
        chain=at_first.chain(),
        bounds=_bounds(columns, at_first),
        bounds_input=_about(columns),
        parameters=columns.parameters,
        parameters_beyond_dense=columns.others,
        **_with_intervals(
            sharpness=means.mean(THETA),
            sharpness_trace=NOTHING if columns.trace is None else means.of(np.add, THETA, TRACE),
            nmls=means.of(lambda *parts: sum(parts), *(of_layer(layer, "largest") for layer in dense)),
            log_network_volume=means.log_mean(*(of_layer(layer, "log_volume") for layer in dense)),
            adaptive_sharpness=means.mean(ADAPTIVE),
            matrix_normalized_sharpness=means.of(
                lambda *parts: sum(layer.spectral_norm * part**0.5 for layer, part in zip(dense, parts, strict=True)),
                *(of_layer(layer, "gradient") for layer in dense),
            ),
        ),
        **(_no_input() if columns.input is None else _of_input(columns.input, means)),
    )


def _with_intervals(**found: Maybe) -> dict[str, Any]:
    """`name` and `name_ci95` of each."""
    return {f"{name}{tail}": pair[place] for name, pair in found.items() for place, tail in enumerate(("", "_ci95"))}


def _no_input() -> dict[str, Any]:
    """Nothing about ∂f/∂input, and the reason."""
    names = (
        *("mls", "mean_log_volume", "log_mean_volume", "mean_log_volume_centred", "mean_rank"),
        *("dimensionality", "input_invariant_mls", "normalized_mls"),
    )
    nothing = _with_intervals(**dict.fromkeys(names, NOTHING))
    return {**nothing, "rank_deficient_samples": None, "rank_deficient_samples_centred": None, "skipped": NO_INPUT}


def _of_input(given: InputColumns, means: Means) -> dict[str, Any]:
    """Everything about ∂f/∂input."""
    centred = given.log_volume_centred
    volume = means.mean_where_any(of_input("log_volume"))
    why = [NO_VOLUME] * (volume[0] is None) + [ONE_SCORE] * (centred is None)
    return {
        **_with_intervals(
            mls=means.mean(of_input("largest")),
            mean_log_volume=volume,
            log_mean_volume=means.log_mean(of_input("log_volume")),
            mean_log_volume_centred=NOTHING if centred is None else means.mean_where_any(CENTRED),
            mean_rank=means.mean(of_input("rank")),
            dimensionality=means.mean_where_any(of_input("dimension")),
            input_invariant_mls=means.mean(of_input("invariant")),
            normalized_mls=means.mean(of_input("normalized")),
        ),
        "rank_deficient_samples": int((~np.isfinite(given.log_volume)).sum()),
        "rank_deficient_samples_centred": None if centred is None else int((~np.isfinite(centred)).sum()),
        "histogram": _histogram(given.largest),
        "skipped": "; ".join(why) or None,
    }


def _histogram(values: Array) -> Histogram:
    low, high = float(values.min()), float(values.max())
    told_apart = high - low > BINS * np.spacing(max(abs(low), abs(high)))
    counts, edges = np.histogram(values, bins=BINS if told_apart else [low, high])
    return Histogram(edges=edges.tolist(), counts=counts.tolist())


def _bounds(columns: Columns, at_first: Bounds) -> list[Bound]:
    everywhere = Bounds(
        columns.dense,
        columns.samples.theta,
        "the inputs of all dense layers",
        columns.slack,
    )
    return [
        at_first.volume("prop-3.4", columns.outputs),
        everywhere.volume("prop-3.6", columns.outputs),
        at_first.sensitivity("prop-3.8"),
        everywhere.sensitivity("prop-3.10"),
        _input_invariant_bound(columns),
        everywhere.weighted_sensitivity("eq-35"),
    ]


def _input_invariant_bound(columns: Columns) -> Bound:
    """(1/d) mean Σ_p x_p² ‖∂f/∂x_p‖² ≤ mean Σ_j θ_j² ‖∂f/∂θ_j‖², d the first layer's outputs (Prop. E.4)."""
    first, about = columns.first, _about(columns)
    why = None
    if first.layer.tokens > 1:
        why = "the first layer acts on several tokens, whose gradients may cancel: the inequality is not proven there"
    elif not first.alone:
        why = "the first layer shares its weights with another layer, so its own gradient is not a part of the sum"
    if why:
        nothing: dict[str, Any] = dict.fromkeys(("left", "right", "holds", "tightness"))
        return Bound(id="prop-e.4", log=False, about=about, skipped=why, **nothing)
    left = float(columns.samples.first_invariant.mean()) / first.layer.out_features
    return plain_bound("prop-e.4", left, float(columns.samples.adaptive.mean()), columns.slack, about)


def _about(columns: Columns) -> str:
    first = columns.first.layer
    if first.fed_by_input and first.cut_point:
        return "the model's input"
    if first.fed_by_input:
        return f"the model's input, through layer {first.name} alone: other ways lead past it (Eq. 17)"
    return f"the input of {first.name}, the first dense layer: no dense layer is fed by the model's input"


# Means of per-sample columns, of logarithms and of volumes, each with its bootstrap interval.
# All columns are resampled in one go, so they are named at the start; a number is then asked for by the column's name.


Name = tuple[str, ...]
Estimate = tuple[float, Interval]
Maybe = tuple[float | None, Interval]  # None: no sample has such a number
NOTHING: Maybe = (None, None)
THETA, ADAPTIVE, TRACE = ("network", "theta"), ("network", "adaptive"), ("network", "trace")
CENTRED = ("input", "log_volume_centred")


def of_input(quantity: str) -> Name:
    """A column of the map from the input to the scores."""
    return "input", quantity


def of_layer(layer: LayerColumns, quantity: str) -> Name:
    """A column of one layer."""
    return "layer", layer.layer.name, quantity


class Means:
    """`plain` columns have a number for every sample; those of `partial` ones are −inf or nan for some."""

    def __init__(self, plain: Mapping[Name, Array], partial: Mapping[Name, Array], bootstrap: Bootstrap) -> None:
        self._tops = {name: _top(column) for name, column in partial.items()}
        table = dict(plain)
        for name, column in partial.items():
            exists = np.isfinite(column)
            table |= {
                (*name, "exists"): exists.astype(np.float64),
                (*name, "value"): np.where(exists, column, 0.0),
                (*name, "volume"): _volumes(column, self._tops[name]),
            }
        self._table = Resampled(table, bootstrap)

    def mean(self, name: Name) -> Estimate:
        """Of a plain column."""
        return self.of(lambda values: values, name)

    def of(self, function: Callable[..., Array], *names: Name) -> Estimate:
        """A function of several columns' means."""
        return self._table.value(function, *names), self._table.ci95(function, *names)

    def mean_where_any(self, name: Name) -> Maybe:
        """Of a partial column, over the samples that have a number."""
        if not np.isfinite(self._tops[name]):
            return NOTHING
        return self.of(np.divide, (*name, "value"), (*name, "exists"))

    def log_mean(self, *names: Name) -> Maybe:
        """Logarithm of the sum over columns of logarithms of their mean volumes; −inf counts as volume 0."""
        present = [name for name in names if np.isfinite(self._tops[name])]
        if not present:
            return NOTHING
        top = max(self._tops[name] for name in present)
        scales = [np.exp(self._tops[name] - top) for name in present]

        def total(*means: Array) -> Array:
            summed: Array = top + np.log(sum(scale * mean for scale, mean in zip(scales, means, strict=True)))
            return summed

        return self.of(total, *((*name, "volume") for name in present))


def _volumes(logs: Array, top: float) -> Array:
    """Volumes in units of the largest, so that none leaves the range of numbers."""
    exists = np.isfinite(logs)
    return np.where(exists, np.exp(np.where(exists, logs - top if np.isfinite(top) else 0.0, 0.0)), 0.0)


def _top(column: Array) -> float:
    """The largest number; −inf where there is none."""
    return float(column[np.isfinite(column)].max(initial=-np.inf))
