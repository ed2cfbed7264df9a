"""From contributions of samples to the numbers of the flatness report, with their intervals and their caveats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.blocks.flatness import LayerFlatness, NetworkFlatness
from audit.fields import Interval
from audit.flatness.terms import Terms
from audit.resample import interval

Array = NDArray[np.float64]
NORMAL_95 = 1.959963984540054


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

    def largest(self) -> tuple[float, Interval]:
        """The largest mean and, of that neuron, mean ± 1.96 standard errors."""
        mean = self.mean()
        j = int(mean.argmax())
        variance = max(0.0, float(self._squares[j] / self._n - mean[j] ** 2))
        half = NORMAL_95 * (variance / self._n) ** 0.5
        return float(mean[j]), (float(mean[j] - half), float(mean[j] + half))


@dataclass(frozen=True)
class Top:
    """The largest eigenvalue and what is known about it."""

    value: float
    residual: float
    quotients: Array  # [n]  vᵀ H_i v


def _scaled(factor: float, ends: Interval) -> Interval:
    return None if ends is None else (factor * ends[0], factor * ends[1])


def layer_block(norm2: float, sums: Sums, top: Top, shares: Array, lambdas: Array) -> LayerFlatness:
    """A layer's numbers; shares [draws, 4] and lambdas [draws] are resampled means."""
    trace, relative, rho_sigma, columns_sigma = (float(value) for value in sums.by_sample().mean(0))
    trace_ci95, relative_ci95, rho_sigma_ci95, columns_sigma_ci95 = (interval(column) for column in shares.T)
    lambda_ci95 = interval(lambdas)
    (rho, rho_ci95), (rho_columns, rho_columns_ci95) = sums.rows.largest(), sums.columns.largest()
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
        rho=rho,
        rho_ci95=rho_ci95,
        rho_sigma=rho_sigma,
        rho_sigma_ci95=rho_sigma_ci95,
        rho_neurons=sums.rows.mean().tolist(),
        rho_columns=rho_columns,
        rho_columns_ci95=rho_columns_ci95,
        rho_columns_sigma=columns_sigma,
        rho_columns_sigma_ci95=columns_sigma_ci95,
        rho_column_neurons=sums.columns.mean().tolist(),
        relative_flatness=relative,
        relative_flatness_ci95=relative_ci95,
        hessian=sums.hessian,
        notes=_notes(norm2, trace, top, sums.hessian),
    )


def _notes(norm2: float, trace: float, top: Top, hessian: str) -> list[str]:
    notes = {
        "all weights are zero, so every number that is weighted by them is zero": norm2 == 0,
        "the Hessian is zero on these samples: the loss does not bend with these weights at all": trace == 0
        and top.value == 0,
        "the trace is negative: the weights are at no minimum of the train loss, so flatness is not defined here": trace
        < 0,
        "λ_max is negative: the train loss bends downwards in every direction of these weights": top.value < 0,
        f"λ_max is known to a residual of {top.residual:.1e} only": top.residual > 1e-3,
        "the network after this layer allows no second derivative: Gauss–Newton curvature, not a Hessian": hessian
        == "gauss-newton",
        "the network after this layer is curved and wide: that part of trace, rho and relative flatness is estimated "
        "from random signs, and its noise is inside the intervals": hessian == "estimated",
    }
    return [note for note, holds in notes.items() if holds]


def network_block(blocks: dict[str, LayerFlatness], shares: Array) -> NetworkFlatness:
    """Maxima and sums over layers; shares [draws, layers, 4]."""

    def every(name: str) -> list[float]:
        return [getattr(block, name) for block in blocks.values()]

    norms = np.array(every("weight_norm_squared"))
    trace, relative, rows, columns = np.moveaxis(shares, 2, 0)  # each [draws, layers]
    return NetworkFlatness(
        kappa_max=max(every("kappa")),
        kappa_sum=sum(every("kappa")),
        kappa_tau_max=max(every("kappa_tau")),
        kappa_tau_sum=sum(every("kappa_tau")),
        kappa_tau_sum_ci95=interval(trace @ norms),
        rho_max=max(every("rho")),
        rho_sum=sum(every("rho_sigma")),
        rho_sum_ci95=interval(rows.sum(1)),
        rho_columns_max=max(every("rho_columns")),
        rho_columns_sum=sum(every("rho_columns_sigma")),
        rho_columns_sum_ci95=interval(columns.sum(1)),
        relative_flatness_sum=sum(every("relative_flatness")),
        relative_flatness_sum_ci95=interval(relative.sum(1)),
        lambda_max=max(every("lambda_max")),
        lambda_max_sum=sum(every("lambda_max")),
        trace_max=max(every("trace")),
        trace_sum=sum(every("trace")),
        trace_sum_ci95=interval(trace.sum(1)),
        layers=list(blocks),
    )
