"""Sample by sample, what each weighted curvature of a dense layer is made of.

With x [n, T, in], W [out, in], u = W x and S = Aᵀ A + R the curvature of the loss in z, all numbers are quadratic forms
of S, and a quadratic form of Aᵀ A is a sum of squares over the scores c:

    trace              Σ_tt' (x_t·x_t') tr S^tt'              =  Σ_tt' (x_t·x_t') Σ_c a_ct·a_ct'               + …
    row j              Σ_tt' S_jj^tt' u_tj u_t'j              =  Σ_c (Σ_t A_ctj u_tj)²                         + …
    column i           Σ_tt' x_ti x_t'i w_iᵀ S^tt' w_i        =  Σ_c (Σ_t (A W)_cti x_ti)²                     + …
    relative flatness  Σ_tt' (x_t·x_t') tr(Wᵀ S^tt' W)        =  Σ_tt' (x_t·x_t') Σ_c (AW)_ct·(AW)_ct'         + …

Where a layer acts on more tokens than it has outputs, all four are read off G_c = Σ_t a_ct x_tᵀ [out, in] instead:

    trace  Σ_c ‖G_c‖²,   row j  Σ_c (w_j·G_cj)²,   column i  Σ_c (w_i·G_ci)²,   relative flatness  Σ_c tr(G_cᵀ W Wᵀ G_c)

The dots are the same forms of R, nonzero only where the network after the layer is curved: exact or estimated, as
network/second_derivatives says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.curvature.sampled import SampledCurvature
from audit.maths.blocks import in_blocks
from audit.maths.gram import ColumnPairs
from audit.maths.shares import Z95
from audit.measures.flatness.block import LayerFlatness, NetworkFlatness
from audit.network import DenseLayer
from audit.network.random_signs import Estimate, LayerForms, SignSums, sum_of_squares
from audit.network.record import LayerProducts, LayerRecord
from audit.network.second_derivatives import MOST_PROBES, gram_root, is_probed, probes, signs
from audit.report.fields import Interval

LARGE_BIAS = 1e3  # a bias this many times larger than any answer without it


@dataclass(frozen=True)
class Terms:
    """Contributions of each sample of a chunk; their means over all samples are the numbers of the report."""

    trace: Tensor  # [n]
    relative: Tensor  # [n]
    rows: Tensor  # [n, out]
    columns: Tensor  # [n, in]

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.trace + other.trace,
            self.relative + other.relative,
            self.rows + other.rows,
            self.columns + other.columns,
        )


def terms_of(products: LayerProducts, W: Tensor, bias: Tensor | None, samples: int, seed: int) -> Terms:
    """All contributions of one layer on one chunk, in float64; `samples` of them in the whole split."""
    record, layer = products.record, products.layer
    x, u = layer.x.double(), _answer_without_bias(layer, W, bias)
    if x.shape[1] > W.shape[0]:
        terms = _from_gradients(record.gauss_newton_weight_root(layer.layer.name), W)
    else:
        terms = _gauss_newton(products, x, u)
    if layer.residual_times is None:
        return terms
    if is_probed(layer, samples):
        return terms + _probed(products, x, u, W, samples, seed)
    return terms + _exact(layer, x, u, W)


def _answer_without_bias(layer: LayerRecord, W: Tensor, bias: Tensor | None) -> Tensor:
    """W x = z − b [n, T, out]; formed anew only where b is so large that the difference has lost its digits."""
    z = layer.z.double()
    if bias is None:
        return z
    u = z - bias
    lost = bias.double().abs() > LARGE_BIAS * u.abs().amax((0, 1))
    return layer.x.double() @ W.T if bool(lost.any()) else u


def _gauss_newton(products: LayerProducts, x: Tensor, u: Tensor) -> Terms:
    """The forms of Aᵀ A: with one vector per sample, diagonals of Jᵀ Λ J and (J W)ᵀ Λ J W, without any A."""
    if x.shape[1] == 1:
        A2, A_W2 = products.gauss_newton_diagonal, _input_diagonal(products)  # [n, out]  [n, in]
        x2 = x[:, 0].square()
        norm2 = x2.sum(1)
        return Terms(norm2 * A2.sum(1), norm2 * A_W2.sum(1), A2 * u[:, 0].square(), A_W2 * x2)
    A, A_W = products.record.gauss_newton_root(products.layer.layer.name), _root_times_weights(products)
    K = x @ x.transpose(1, 2)  # [n, T, T]
    return Terms(
        _inner(K, A),
        _inner(K, A_W),
        (A * u[:, None]).sum(2).square().sum(1),
        (A_W * x[:, None]).sum(2).square().sum(1),
    )


def _input_diagonal(products: LayerProducts) -> Tensor:
    """The diagonal of (J W)ᵀ Λ J W [n, in], of the J W that others share, or block by block where it is too wide."""
    record, layer = products.record, products.layer
    diagonal = record.loss_function.curvature_diagonal
    if not layer.layer.has_wide_input:
        return in_blocks(diagonal, record.f, record.y, products.JW[:, :, 0])
    W, width = layer.W.double(), layer.J.shape[1] * layer.layer.in_features
    return in_blocks(lambda f, y, J: diagonal(f, y, J.double() @ W), record.f, record.y, layer.J[:, :, 0], width=width)


def _root_times_weights(products: LayerProducts) -> Tensor:
    """A W [n, C, T, in]: of A, or as the root of the curvature times the shared J W."""
    record, layer = products.record, products.layer
    if layer.layer.has_wide_input:
        return record.gauss_newton_root(layer.layer.name) @ layer.W.double()
    return record.loss_function.curvature_root_times(record.f, record.y, products.JW)


def _from_gradients(blocks: Iterable[Tensor], W: Tensor) -> Terms:
    """The same forms from G [m, C, out, in], a few samples m at a time."""
    columns: list[tuple[Tensor, ...]] = []
    for G in blocks:
        relative, weighted = (G * (W @ W.T @ G)).sum((1, 2, 3)), G * W
        rows, by_input = weighted.sum(3).square().sum(1), weighted.sum(2).square().sum(1)
        columns.append((G.square().sum((1, 2, 3)), relative, rows, by_input))
    return Terms(*(torch.cat(column) for column in zip(*columns, strict=True)))


def _inner(K: Tensor, A: Tensor) -> Tensor:
    """Σ_tt' K_tt' Σ_c a_ct·a_ct'  [n]."""
    flat = A.transpose(1, 2).flatten(2)  # [n, T, C·out]
    return (K * (flat @ flat.transpose(1, 2))).sum((1, 2))


def _exact(layer: LayerRecord, x: Tensor, u: Tensor, W: Tensor) -> Terms:
    """The forms of R, from its columns (t, o), a few outputs o of one token t at a time."""
    (n, _, out), K, W_W = u.shape, x @ x.transpose(1, 2), W @ W.T
    trace, relative, rows, columns = (x.new_zeros(n, *size) for size in ((), (), (out,), (x.shape[2],)))
    for t, outputs, R_to in layer.residual_columns():  # R_to [m, n, T, out]
        near = torch.einsum("ns,mnso->nmo", K[:, t], R_to)
        own = torch.diagonal(R_to[..., outputs], dim1=0, dim2=3)  # [n, T, m]
        trace += torch.diagonal(near[..., outputs], dim1=1, dim2=2).sum(1)
        relative += (near * W_W[outputs]).sum((1, 2))
        rows[:, outputs] += u[:, t, outputs] * (u[..., outputs] * own).sum(1)
        columns += x[:, t] * torch.einsum("mi,nsi,mnsi->ni", W[outputs], x, R_to @ W)
    return Terms(trace, relative, rows, columns)


def _probed(products: LayerProducts, x: Tensor, u: Tensor, W: Tensor, samples: int, seed: int) -> Terms:
    """The forms of R, each the mean over random directions whose covariance is the form's weight."""
    R_times, start = products.layer.residual_times, products.record.start
    assert R_times is not None
    (n, _, out), size = u.shape, x.shape[2]
    root, count = gram_root(x), probes(samples)
    total = Terms(x.new_zeros(n), x.new_zeros(n), x.new_zeros(n, out), x.new_zeros(n, size))
    for probe in range(count):
        stream = seed * MOST_PROBES + probe
        by_out, by_in = (signs(start, (n, root.shape[2], width), stream, x) for width in (out, size))
        x_signed = x * by_in[:, :1]
        moved = torch.stack([root @ by_out, root @ (by_in @ W.T), u * by_out[:, :1], x_signed @ W.T])
        R_moved = R_times(moved)  # [4, n, T, out]
        trace, relative, row, _ = moved * R_moved
        column = (x_signed * (R_moved[3] @ W)).sum(1)
        total += Terms(trace.sum((1, 2)), relative.sum((1, 2)), row.sum(1), column)
    return Terms(*(part / count for part in (total.trace, total.relative, total.rows, total.columns)))


# Flatness where all samples are too many: the same numbers from random signs and from columns of most energy.


GAUSS_NEWTON = "gauss-newton"
CURVED = (
    "the network after this layer is curved: these numbers are of the Gauss–Newton part of the Hessian, which leaves "
    "that curvature out"
)


def sampled_layer(curvature: SampledCurvature, layer: DenseLayer) -> LayerFlatness:
    """One layer's numbers, each with its interval or bounds."""
    curved, residual = layer.name in curvature.residuals.curved, curvature.residuals.traces.get(layer.name)
    forms = curvature.sums.layers[layer.name]
    pairs = curvature.pairs(layer)
    norm2 = float(sum_of_squares(layer.weight(curvature.capture.network)))
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
        columns=pairs.count,
        residual_trace=float(residual.value) if curved and residual is not None else None,
        residual_trace_ci95=_interval(residual) if curved and residual is not None else None,
        residual_samples=residual.samples if curved and residual is not None else None,
        notes=[CURVED] if curved else [],
    )


def sampled_network(
    blocks: Mapping[str, LayerFlatness], summed: Sequence[str], sums: SignSums, notes: list[str]
) -> NetworkFlatness:
    """Maxima over the layers `summed`, and their sums as they came out in each draw."""
    layers, total = [blocks[name] for name in summed], sums.total(summed)

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
