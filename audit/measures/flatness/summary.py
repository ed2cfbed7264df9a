"""From contributions of samples to the numbers of the flatness report, with their intervals and their caveats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.intervals import mean_error
from audit.maths.resample import interval
from audit.measures.flatness.block import LayerFlatness, NetworkFlatness
from audit.measures.flatness.terms import Terms
from audit.report.fields import Interval

Array = NDArray[np.float64]


class Sums:
    """What is kept of a layer while the samples stream by."""

    def __init__(self) -> None:
        self._shares: list[Tensor] = []  # each [n, 4], trace, relative flatness, rho_sigma, rho_columns_sigma
        self.rows, self.columns = Moments(), Moments()
        self.hessian = "exact"

    def add(self, terms: Terms, hessian: str) -> None:
        """Takes in one chunk; `hessian` says how its curvature was had."""
        shares = (terms.trace, terms.relative, terms.rows.sum(1), terms.columns.sum(1))
        self._shares.append(torch.stack(shares, 1).cpu())
        self.rows.add(terms.rows)
        self.columns.add(terms.columns)
        self.hessian = hessian if hessian != "exact" else self.hessian

    def by_sample(self) -> Array:
        """[n, 4]."""
        shares: Array = torch.cat(self._shares).numpy()
        return shares


class Moments:
    """Mean and standard error of every neuron's contribution, in one pass."""

    def __init__(self) -> None:
        self._n = 0
        self._sum: Array = np.zeros(1)
        self._squares: Array = np.zeros(1)

    def add(self, values: Tensor) -> None:
        """Takes in one chunk [n, neurons]."""
        self._n += len(values)
        self._sum = self._sum + values.sum(0).cpu().numpy()
        self._squares = self._squares + values.square().sum(0).cpu().numpy()

    def mean(self) -> Array:
        """Of every neuron."""
        return self._sum / self._n

    def error_of_mean(self) -> Array:
        """Of every neuron's mean."""
        variance: Array = np.maximum(0.0, self._squares / self._n - self.mean() ** 2)
        return mean_error(variance, self._n)

    def largest(self) -> int:
        """The neuron with the largest mean."""
        return int(self.mean().argmax())


@dataclass(frozen=True)
class Top:
    """The largest eigenvalue and what is known about it."""

    value: float
    residual: float


@dataclass(frozen=True)
class Draws:
    """Resampled means over the train samples, of one layer or of several side by side."""

    trace: Array  # [draws, …]
    relative: Array
    rho_sigma: Array
    columns_sigma: Array
    lambda_max: Array  # vᵀ H v, v the eigenvector
    rho: Array  # of the layer's largest neuron
    rho_columns: Array

    def of(self, places: int | Sequence[int]) -> Draws:
        """Those of one layer, or of some."""
        return Draws(*(getattr(self, field.name)[:, places] for field in fields(self)))


def _scaled(factor: float, ends: Interval) -> Interval:
    return None if ends is None else (factor * ends[0], factor * ends[1])


def layer_block(norm2: float, sums: Sums, top: Top, draws: Draws) -> LayerFlatness:
    """A layer's numbers, with the intervals that its draws give."""
    trace, relative, rho_sigma, columns_sigma = (float(value) for value in sums.by_sample().mean(0))
    trace_ci95, lambda_ci95 = interval(draws.trace), interval(draws.lambda_max)
    rows, columns = sums.rows.mean(), sums.columns.mean()
    return LayerFlatness(
        weight_norm_squared=norm2,
        lambda_max=top.value,
        lambda_max_residual=top.residual,
        lambda_max_ci95=lambda_ci95,
        trace=trace,
        trace_ci95=trace_ci95,
        kappa=norm2 * top.value,
        kappa_ci95=_scaled(norm2, lambda_ci95),
        kappa_tau=norm2 * trace,
        kappa_tau_ci95=_scaled(norm2, trace_ci95),
        rho=float(rows.max()),
        rho_ci95=interval(draws.rho),
        rho_sigma=rho_sigma,
        rho_sigma_ci95=interval(draws.rho_sigma),
        rho_neurons=rows.tolist(),
        rho_neurons_std=sums.rows.error_of_mean().tolist(),
        rho_columns=float(columns.max()),
        rho_columns_ci95=interval(draws.rho_columns),
        rho_columns_sigma=columns_sigma,
        rho_columns_sigma_ci95=interval(draws.columns_sigma),
        rho_column_neurons=columns.tolist(),
        rho_column_neurons_std=sums.columns.error_of_mean().tolist(),
        relative_flatness=relative,
        relative_flatness_ci95=interval(draws.relative),
        hessian=sums.hessian,
        notes=_notes(norm2, trace, top, sums.hessian),
    )


def _notes(norm2: float, trace: float, top: Top, hessian: str) -> list[str]:
    notes = {
        "all weights are zero, so every number that is weighted by them is zero": norm2 == 0,
        "the Hessian is zero on these samples: the loss is not curved in these weights at all": trace == 0
        and top.value == 0,
        "the trace is negative: the weights are at no minimum of the train loss, so flatness is not defined here": trace
        < 0,
        "λ_max is negative: the train loss curves downwards in every direction of these weights": top.value < 0,
        f"λ_max is known to a residual of {top.residual:.1e} only": top.residual > 1e-3,
        "the network after this layer allows no second derivative: Gauss–Newton curvature, not a Hessian": hessian
        == "gauss-newton",
        "the network after this layer is curved and wide: that part of trace, rho and relative flatness is estimated "
        "from random signs, and its noise is inside the intervals": hessian == "estimated",
    }
    return [note for note, holds in notes.items() if holds]


def network_block(blocks: dict[str, LayerFlatness], draws: Draws) -> NetworkFlatness:
    """Maxima and sums over layers; an interval's maximum is taken anew in every draw."""

    def every(name: str) -> list[float]:
        return [getattr(block, name) for block in blocks.values()]

    norms = np.array(every("weight_norm_squared"))
    kappa, kappa_tau = draws.lambda_max * norms, draws.trace * norms  # [draws, layers]
    return NetworkFlatness(
        kappa_max=max(every("kappa")),
        kappa_max_ci95=_of_largest(kappa),
        kappa_sum=sum(every("kappa")),
        kappa_sum_ci95=interval(kappa.sum(1)),
        kappa_tau_max=max(every("kappa_tau")),
        kappa_tau_max_ci95=_of_largest(kappa_tau),
        kappa_tau_sum=sum(every("kappa_tau")),
        kappa_tau_sum_ci95=interval(kappa_tau.sum(1)),
        rho_max=max(every("rho")),
        rho_max_ci95=_of_largest(draws.rho),
        rho_sum=sum(every("rho_sigma")),
        rho_sum_ci95=interval(draws.rho_sigma.sum(1)),
        rho_columns_max=max(every("rho_columns")),
        rho_columns_max_ci95=_of_largest(draws.rho_columns),
        rho_columns_sum=sum(every("rho_columns_sigma")),
        rho_columns_sum_ci95=interval(draws.columns_sigma.sum(1)),
        relative_flatness_sum=sum(every("relative_flatness")),
        relative_flatness_sum_ci95=interval(draws.relative.sum(1)),
        lambda_max=max(every("lambda_max")),
        lambda_max_ci95=_of_largest(draws.lambda_max),
        lambda_max_sum=sum(every("lambda_max")),
        lambda_max_sum_ci95=interval(draws.lambda_max.sum(1)),
        trace_max=max(every("trace")),
        trace_max_ci95=_of_largest(draws.trace),
        trace_sum=sum(every("trace")),
        trace_sum_ci95=interval(draws.trace.sum(1)),
        layers=list(blocks),
    )


def _of_largest(draws: Array) -> Interval:
    """Interval of the largest layer; [draws, layers]."""
    return interval(draws.max(1)) if len(draws) else None
