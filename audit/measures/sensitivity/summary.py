"""From per-sample columns to the blocks of the report: means, their intervals, the chain and the bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from audit.maths.resample import Bootstrap
from audit.maths.shares import Z95
from audit.measures.contract import Measurement
from audit.measures.sensitivity.block import Bound, Histogram, LayerSensitivity, NetworkSensitivity
from audit.measures.sensitivity.bounds import Bounds, known, plain_bound, skip_form, standard_error_of_picked
from audit.measures.sensitivity.columns import (
    ADAPTIVE,
    CENTRED,
    NOTHING,
    THETA,
    TRACE,
    Array,
    Columns,
    InputColumns,
    LayerColumns,
    Maybe,
    Means,
    Name,
    Picked,
    of_input,
    of_layer,
)
from audit.network.random_signs import Estimate

BINS = 40
NO_INPUT = "the input is made of integers, such as token ids, so there is no derivative with respect to it"
ONE_SCORE = "one of the volumes compares a model's outputs with each other, and this model has only one output"
MANY_SCORES = (
    "volumes, ranks and dimensions would take a backward pass for each of so many scores; norms are found by iteration"
)
MANY_TOKENS = "a layer over several tokens would take an iteration of its own, and is left out"
NO_VOLUME = "no sample has a Jacobian of full rank, so every volume is zero and has no logarithm"


def summarise(columns: Columns, bootstrap: Bootstrap) -> Measurement:
    """The blocks of every layer and of the network."""
    means = _means(columns, bootstrap)
    layers = {layer.layer.name: _layer(layer, columns, means) for layer in columns.layers}
    return Measurement(layers, _network(columns, means))


def _means(columns: Columns, bootstrap: Bootstrap) -> Means:
    """Every column behind a mean, resampled together."""
    samples, given = columns.samples, columns.input
    plain: dict[Name, Array | None] = {THETA: samples.theta, ADAPTIVE: samples.adaptive, TRACE: columns.trace}
    partial: dict[Name, Array | None] = {of_layer(layer, "log_volume"): layer.log_volume for layer in columns.layers}
    for layer in columns.layers:
        plain |= {of_layer(layer, "largest"): layer.largest, of_layer(layer, "gradient"): layer.gradient}
    if given is not None:
        plain |= {of_input(name): getattr(given, name) for name in ("largest", "rank", "normalized", "invariant")}
        partial |= {of_input("log_volume"): given.log_volume, of_input("dimension"): given.dimension}
        partial[CENTRED] = given.log_volume_centred
    return Means(_present(plain), _present(partial), bootstrap)


def _present(columns: Mapping[Name, Array | None]) -> dict[Name, Array]:
    return {name: column for name, column in columns.items() if column is not None}


def _layer(layer: LayerColumns, columns: Columns, means: Means) -> LayerSensitivity:
    mls, mls_ci95 = means.mean(of_layer(layer, "largest"))
    mean_log, mean_log_ci95 = means.mean_where_any(of_layer(layer, "log_volume"))
    log_mean, log_mean_ci95 = means.log_mean(of_layer(layer, "log_volume"))
    sharpness, sharpness_ci95 = means.mean(of_layer(layer, "gradient"))
    picked, volumes = columns.picked, layer.log_volume
    if layer.gradient is None and picked is not None:
        sharpness, sharpness_ci95 = estimated(picked.signs.layers.get(layer.layer.name))
    return LayerSensitivity(
        mls=mls,
        mls_ci95=mls_ci95,
        mean_log_volume=mean_log,
        mean_log_volume_ci95=mean_log_ci95,
        log_mean_volume=log_mean,
        log_mean_volume_ci95=log_mean_ci95,
        rank_deficient_samples=None if volumes is None else int((~np.isfinite(volumes)).sum()),
        weight_spectral_norm=layer.spectral_norm,
        sharpness=sharpness,
        sharpness_ci95=sharpness_ci95,
        degenerate_inputs=int((layer.x_norm == 0).sum()),
        units_active=layer.active,
        skip=skip_form(layer, columns.slack),
        skipped=_why_nothing(picked, layer) if volumes is None else NO_VOLUME if mean_log is None else None,
        **_form(picked),
    )


def _why_nothing(picked: Picked | None, layer: LayerColumns) -> str | None:
    return None if picked is None else MANY_SCORES if layer.largest is not None else f"{MANY_SCORES}; {MANY_TOKENS}"


def _form(picked: Picked | None) -> dict[str, Any]:
    return {} if picked is None else {"form": "sampled", "samples": picked.samples}


def _network(columns: Columns, means: Means) -> NetworkSensitivity:
    dense, picked = columns.dense, columns.picked
    at_first = Bounds([columns.first], columns, _about(columns))
    changed, error = columns.changed or (None, None)
    return NetworkSensitivity(
        sharpness_trace_skipped=columns.trace_skipped,
        adaptive_sharpness_sampled=changed,
        adaptive_sharpness_sampled_std=error,
        chain=at_first.chain(),
        bounds=_bounds(columns, at_first),
        bounds_input=_about(columns),
        parameters=columns.parameters,
        parameters_beyond_dense=columns.others,
        **_with_intervals(
            sharpness=_sharpness(columns, means),
            sharpness_trace=_trace(columns, means),
            nmls=means.of(lambda *parts: sum(parts), *(of_layer(layer, "largest") for layer in dense)),
            log_network_volume=means.log_mean(*(of_layer(layer, "log_volume") for layer in dense)),
            adaptive_sharpness=means.mean(ADAPTIVE) if picked is None else estimated(picked.signs.adaptive),
            matrix_normalized_sharpness=_matrix_normalized(columns, means),
        ),
        **(_no_input(columns) if columns.input is None else _of_input(columns.input, means)),
        **_form(picked),
        sign_samples=None if picked is None else picked.signs.theta.samples,
        norm_error=None if picked is None else picked.norm_error,
    )


def _sharpness(columns: Columns, means: Means) -> Maybe:
    return means.mean(THETA) if columns.picked is None else estimated(columns.picked.signs.theta)


def _matrix_normalized(columns: Columns, means: Means) -> Maybe:
    """Σ_l ‖W_l‖₂ √(mean ‖∇_{W_l} f‖_F²) (Eq. 35)."""
    dense, picked = columns.dense, columns.picked
    if picked is None or all(layer.gradient is not None for layer in dense):
        return means.of(
            lambda *parts: sum(layer.spectral_norm * part**0.5 for layer, part in zip(dense, parts, strict=True)),
            *(of_layer(layer, "gradient") for layer in dense),
        )
    found = [(layer.spectral_norm, picked.signs.layers.get(layer.layer.name)) for layer in dense]
    parts = [(norm * squares.value.sqrt(), squares) for norm, squares in found if squares is not None]
    if len(parts) < len(dense):
        return NOTHING
    error = sum(root * squares.error / (2 * squares.value) for root, squares in parts if squares.value > 0)  # at most
    return estimated(Estimate(torch.stack([root for root, _ in parts]).sum(), torch.as_tensor(error), 0))


def _trace(columns: Columns, means: Means) -> Maybe:
    """S(θ) and what the network's curvature adds; sampled, it is known where there is none."""
    if columns.picked is None:
        return means.of(np.add, THETA, TRACE)
    return _sharpness(columns, means) if columns.trace_skipped is None else NOTHING


def estimated(found: Estimate | None) -> Maybe:
    """A number from random signs."""
    if found is None:
        return NOTHING
    value, error = float(found.value), float(found.error)
    return value, (value - Z95 * error, value + Z95 * error)


def _with_intervals(**found: Maybe) -> dict[str, Any]:
    """`name` and `name_ci95` of each."""
    return {f"{name}{tail}": pair[place] for name, pair in found.items() for place, tail in enumerate(("", "_ci95"))}


def _no_input(columns: Columns) -> dict[str, Any]:
    """Nothing about ∂f/∂input, and the reason."""
    why = NO_INPUT if columns.picked is None else columns.picked.skipped or NO_INPUT
    names = (
        *("mls", "mean_log_volume", "log_mean_volume", "mean_log_volume_centred", "mean_rank"),
        *("dimensionality", "input_invariant_mls", "normalized_mls"),
    )
    nothing = _with_intervals(**dict.fromkeys(names, NOTHING))
    return {**nothing, "rank_deficient_samples": None, "rank_deficient_samples_centred": None, "skipped": why}


def _of_input(given: InputColumns, means: Means) -> dict[str, Any]:
    """Everything about ∂f/∂input."""
    centred, volumes = given.log_volume_centred, given.log_volume
    volume = means.mean_where_any(of_input("log_volume"))
    why = [NO_VOLUME] * (volume[0] is None) + [ONE_SCORE] * (centred is None)
    if volumes is None:
        why = [MANY_SCORES]
    return {
        **_with_intervals(
            mls=means.mean(of_input("largest")),
            mean_log_volume=volume,
            log_mean_volume=means.log_mean(of_input("log_volume")),
            mean_log_volume_centred=means.mean_where_any(CENTRED),
            mean_rank=means.mean(of_input("rank")),
            dimensionality=means.mean_where_any(of_input("dimension")),
            input_invariant_mls=means.mean(of_input("invariant")),
            normalized_mls=means.mean(of_input("normalized")),
        ),
        "rank_deficient_samples": None if volumes is None else int((~np.isfinite(volumes)).sum()),
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
    everywhere = Bounds(columns.dense, columns, "the inputs of all dense layers")
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
    picked, adaptive = columns.picked, columns.samples.adaptive
    each = columns.samples.first_invariant / first.layer.out_features
    if picked is None:
        return plain_bound("prop-e.4", (float(each.mean()), float(known(adaptive).mean())), columns.slack, 0.0, about)
    right = picked.signs.adaptive
    error = Z95 * math.hypot(standard_error_of_picked(each, picked), float(right.error))
    return plain_bound("prop-e.4", (float(each.mean()), float(right.value)), columns.slack, error, about)


def _about(columns: Columns) -> str:
    first = columns.first.layer
    if first.fed_by_input and first.cut_point:
        return "the model's input"
    if first.fed_by_input:
        return f"the model's input, through layer {first.name} alone: other ways lead past it (Eq. 17)"
    return f"the input of {first.name}, the first dense layer: no dense layer is fed by the model's input"
