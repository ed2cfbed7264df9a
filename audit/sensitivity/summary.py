"""From per-sample columns to the blocks of the report: means, their intervals, the chain and the bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.blocks.sensitivity import Bound, Histogram, LayerSensitivity, NetworkSensitivity
from audit.fields import Interval
from audit.layers import DenseLayer, dense_only
from audit.measure import Measurement
from audit.resample import Resampled
from audit.sensitivity.bounds import Bounds, LayerColumns, plain_bound, skip_form

Array = NDArray[np.float64]
BINS = 40
NO_INPUT = "the input is made of integers, such as token ids, so there is no derivative with respect to it"
ONE_SCORE = "one score cannot be centred: mean_log_volume_centred does not exist"
NO_VOLUME = "no sample has a Jacobian of full rank, so every volume is zero and has no logarithm"


@dataclass(frozen=True)
class Columns:
    """Everything that the fold kept."""

    values: Mapping[str, Array]  # per-sample columns; those of a layer are named "layer/column"
    layers: tuple[DenseLayer, ...]
    spectral_norms: Mapping[str, float]
    active: Mapping[str, list[int]]  # for each output of a layer, samples on which it moves a score
    alone: Mapping[str, bool]  # whether a layer's weights belong to it alone
    first: DenseLayer
    outputs: int
    epsilon: float
    parameters: int
    others: int
    trace_skipped: str | None
    sampled: tuple[float, float] | None

    @property
    def slack(self) -> float:
        """How much rounding may break an inequality that is tight."""
        return 1e-9 if self.epsilon < 1e-12 else 1e-4

    def layer(self, name: str) -> LayerColumns:
        """One layer's columns."""
        fields = ("largest", "frobenius", "log_volume", "gradient", "reach")
        columns = {key: self.values[f"{name}/{key}"] for key in fields}
        return LayerColumns(name=name, spectral_norm=self.spectral_norms[name], alone=self.alone[name], **columns)


def summarise(columns: Columns, draws: int, seed: int) -> Measurement:
    """The blocks of every layer and of the network."""
    means = _Means(columns, draws, seed)
    layers = {layer.name: _layer(columns, means, layer) for layer in columns.layers}
    return Measurement(layers, _network(columns, means))


class _Means:
    """The columns behind every mean, ready to be resampled together."""

    def __init__(self, columns: Columns, draws: int, seed: int) -> None:
        prepared: dict[str, Array] = {}
        self.tops: dict[str, float] = {}
        for name, values in columns.values.items():
            if name.split("/")[-1] in ("log_volume", "log_volume_centred"):
                self._prepare_volume(prepared, name, values)
            elif name == "dimension":
                exists = np.isfinite(values)
                prepared |= {name: np.where(exists, values, 0.0), "dimension/exists": exists.astype(np.float64)}
            else:
                prepared[name] = values.astype(np.float64)
        self._table = Resampled(prepared, draws, seed)

    def _prepare_volume(self, prepared: dict[str, Array], name: str, logs: Array) -> None:
        full = np.isfinite(logs)
        top = float(logs[full].max()) if full.any() else -np.inf
        self.tops[name] = top
        prepared[f"{name}/full"] = full.astype(np.float64)
        prepared[f"{name}/log"] = np.where(full, logs, 0.0)
        prepared[f"{name}/volume"] = np.exp(logs - top) if full.any() else np.zeros_like(logs)

    def mean(self, name: str) -> tuple[float, Interval]:
        """A column's mean and interval."""
        return self.of(lambda values: values, name)

    def of(self, function: Callable[..., Array], *names: str) -> tuple[float, Interval]:
        """A function of several columns' means."""
        return self._table.value(function, *names), self._table.ci95(function, *names)

    def mean_log(self, name: str) -> tuple[float | None, Interval]:
        """Mean of the logarithms over the samples of full rank."""
        if not np.isfinite(self.tops[name]):
            return None, None
        return self.of(np.divide, f"{name}/log", f"{name}/full")

    def log_mean(self, *names: str) -> tuple[float | None, Interval]:
        """Logarithm of the sum over columns of their mean volumes, a rank-deficient sample counting as 0."""
        present = [name for name in names if np.isfinite(self.tops[name])]
        if not present:
            return None, None
        top = max(self.tops[name] for name in present)
        scales = [np.exp(self.tops[name] - top) for name in present]

        def total(*means: Array) -> Array:
            summed: Array = top + np.log(sum(scale * mean for scale, mean in zip(scales, means, strict=True)))
            return summed

        return self.of(total, *(f"{name}/volume" for name in present))


def _layer(columns: Columns, means: _Means, layer: DenseLayer) -> LayerSensitivity:
    name = layer.name
    table = columns.layer(name)
    mls, mls_ci95 = means.mean(f"{name}/largest")
    mean_log, mean_log_ci95 = means.mean_log(f"{name}/log_volume")
    log_mean, log_mean_ci95 = means.log_mean(f"{name}/log_volume")
    sharpness, sharpness_ci95 = means.mean(f"{name}/gradient")
    whole, past = columns.values.get(f"{name}/whole"), columns.values.get(f"{name}/past")
    return LayerSensitivity(
        mls=mls,
        mls_ci95=mls_ci95,
        mean_log_volume=mean_log,
        mean_log_volume_ci95=mean_log_ci95,
        log_mean_volume=log_mean,
        log_mean_volume_ci95=log_mean_ci95,
        rank_deficient_samples=int((~np.isfinite(table.log_volume)).sum()),
        weight_spectral_norm=table.spectral_norm,
        sharpness=sharpness,
        sharpness_ci95=sharpness_ci95,
        degenerate_inputs=int((table.reach == 0).sum()),
        units_active=columns.active[name],
        skip=None if whole is None or past is None else skip_form(table, whole, past, columns.slack),
        skipped=NO_VOLUME if mean_log is None else None,
    )


def _network(columns: Columns, means: _Means) -> NetworkSensitivity:
    names = [layer.name for layer in dense_only(columns.layers)]
    norms = [columns.spectral_norms[name] for name in names]
    sharpness, sharpness_ci95 = means.mean("theta")
    nmls, nmls_ci95 = means.of(lambda *parts: sum(parts), *(f"{name}/largest" for name in names))
    volume, volume_ci95 = means.log_mean(*(f"{name}/log_volume" for name in names))
    adaptive, adaptive_ci95 = means.mean("adaptive")
    matrix, matrix_ci95 = means.of(
        lambda *parts: sum(norm * np.sqrt(part) for norm, part in zip(norms, parts, strict=True)),
        *(f"{name}/gradient" for name in names),
    )
    at_first = Bounds([columns.layer(columns.first.name)], columns.values["theta"], _about(columns), columns.slack)
    sampled, error = columns.sampled or (None, None)
    return NetworkSensitivity(
        sharpness=sharpness,
        sharpness_ci95=sharpness_ci95,
        sharpness_trace=None if columns.trace_skipped else sharpness + float(columns.values["trace"].mean()),
        sharpness_trace_skipped=columns.trace_skipped,
        nmls=nmls,
        nmls_ci95=nmls_ci95,
        log_network_volume=volume,
        log_network_volume_ci95=volume_ci95,
        adaptive_sharpness=adaptive,
        adaptive_sharpness_ci95=adaptive_ci95,
        adaptive_sharpness_sampled=sampled,
        adaptive_sharpness_sampled_std=error,
        matrix_normalized_sharpness=matrix,
        matrix_normalized_sharpness_ci95=matrix_ci95,
        chain=at_first.chain(),
        bounds=_bounds(columns, at_first),
        bounds_input=_about(columns),
        parameters=columns.parameters,
        parameters_beyond_dense=columns.others,
        **_input_numbers(columns, means),
    )


def _input_numbers(columns: Columns, means: _Means) -> dict[str, Any]:
    """Everything about ∂f/∂input, or None for each and the reason."""
    pairs: dict[str, tuple[float | None, Interval]] = dict.fromkeys(
        (
            *("mls", "mean_log_volume", "log_mean_volume", "mean_log_volume_centred"),
            *("dimensionality", "input_invariant_mls", "normalized_mls"),
        ),
        (None, None),
    )
    counts: dict[str, Any] = dict.fromkeys(("rank_deficient_samples", "rank_deficient_samples_centred", "mean_rank"))
    why: list[str] = []
    if "largest" not in columns.values:
        why = [NO_INPUT]
    else:
        pairs |= _input_means(columns, means)
        counts = _rank_counts(columns)
        why = [NO_VOLUME] * (pairs["mean_log_volume"][0] is None) + [ONE_SCORE] * (columns.outputs == 1)
        counts["histogram"] = _histogram(columns.values["largest"])
    both = {f"{name}{tail}": pair[place] for name, pair in pairs.items() for place, tail in enumerate(("", "_ci95"))}
    return {**both, **counts, "skipped": "; ".join(why) or None}


def _input_means(columns: Columns, means: _Means) -> dict[str, tuple[float | None, Interval]]:
    found: dict[str, tuple[float | None, Interval]] = {
        "mls": means.mean("largest"),
        "mean_log_volume": means.mean_log("log_volume"),
        "log_mean_volume": means.log_mean("log_volume"),
        "input_invariant_mls": means.mean("invariant"),
        "normalized_mls": means.mean("normalized"),
    }
    if "log_volume_centred" in columns.values:
        found["mean_log_volume_centred"] = means.mean_log("log_volume_centred")
    if np.isfinite(columns.values["dimension"]).any():
        found["dimensionality"] = means.of(np.divide, "dimension", "dimension/exists")
    return found


def _rank_counts(columns: Columns) -> dict[str, Any]:
    centred = columns.values.get("log_volume_centred")
    return {
        "rank_deficient_samples": int((~np.isfinite(columns.values["log_volume"])).sum()),
        "rank_deficient_samples_centred": None if centred is None else int((~np.isfinite(centred)).sum()),
        "mean_rank": float(columns.values["rank"].mean()),
    }


def _histogram(values: Array) -> Histogram:
    low, high = float(values.min()), float(values.max())
    told_apart = high - low > BINS * np.spacing(max(abs(low), abs(high)))
    counts, edges = np.histogram(values, bins=BINS if told_apart else [low, high])
    return Histogram(edges=edges.tolist(), counts=counts.tolist())


def _bounds(columns: Columns, at_first: Bounds) -> list[Bound]:
    everywhere = Bounds(
        [columns.layer(layer.name) for layer in dense_only(columns.layers)],
        columns.values["theta"],
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
    if first.tokens > 1:
        why = "the first layer acts on several tokens, whose gradients may cancel: the inequality is not proven there"
    elif not columns.alone[first.name]:
        why = "the first layer shares its weights with another layer, so its own gradient is not a part of the sum"
    if why:
        nothing: dict[str, Any] = dict.fromkeys(("left", "right", "holds", "tightness"))
        return Bound(id="prop-e.4", log=False, about=about, skipped=why, **nothing)
    left = float(columns.values["first_invariant"].mean()) / first.out_features
    return plain_bound("prop-e.4", left, float(columns.values["adaptive"].mean()), columns.slack, about)


def _about(columns: Columns) -> str:
    first = columns.first
    if first.fed_by_input and first.cut_point:
        return "the model's input"
    if first.fed_by_input:
        return f"the model's input, through layer {first.name} alone: other ways lead past it (Eq. 17)"
    return f"the input of {first.name}, the first dense layer: no dense layer is fed by the model's input"
