"""The local maps of a network with many scores: their norms by iteration, and no volume, rank or dimension.

A layer with one vector per sample has K = J W, whose norm takes steps through the network behind it; one over tokens
would take as many steps for each, and is left out. Sums over all scores come from random directions v with E[v vᵀ] = 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.decompositions import eigh, smallest_singular_value
from audit.maths.gram import spectral_norm
from audit.measures.contract import Audit
from audit.measures.sensitivity.columns import Array, InputColumns, LayerColumns, column
from audit.measures.sensitivity.maps import first_layer
from audit.measures.sensitivity.sharpness import NOT_TWICE
from audit.model.packing import continuous_only
from audit.network import DenseLayer, dense_only
from audit.network.backward import ForwardPass
from audit.network.capture import Batch, Capture
from audit.network.parameter_gradients import closed_parameters

DRAWS = 4  # random directions of the scores for each sample


@dataclass(frozen=True)
class ManyScores:
    """What was found."""

    input: InputColumns | None
    layers: dict[str, LayerColumns]
    first: DenseLayer
    first_invariant: Array
    norm_error: float
    skipped: str | None  # why there are no norms


class NormFold:
    """Filled batch by batch."""

    def __init__(self, audit: Audit, capture: Capture) -> None:
        self._audit, self._capture = audit, capture
        self._generator = torch.Generator().manual_seed(audit.settings.seed)
        self._norms = {layer.name: spectral_norm(audit.weight(layer)) for layer in capture.layers}
        self._first = first_layer(dense_only(capture.layers))
        self._columns: dict[tuple[str, str], list[Array]] = defaultdict(list)
        self._active: dict[str, Tensor] = {}
        self._error = 0.0
        self._skipped: str | None = None

    def see(self, batch: Batch) -> None:
        """Takes in some samples."""
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
            forward = self._capture.run(batch.x, needs_input=batch.x.is_floating_point())
            self._see_draws(forward, batch)
            for layer in self._capture.layers:
                self._see_layer(layer, forward, batch.rows)
            if forward.leaf is not None:
                self._see_input(forward, batch)

    def _see_input(self, forward: ForwardPass, batch: Batch) -> None:
        assert forward.leaf is not None
        found = self._found(jacobian_products(forward.f, forward.leaf), forward.f)
        if found is None:
            return
        largest = found[: batch.rows]
        x = continuous_only(self._audit.model.input, batch.x[: batch.rows].flatten(1).double())
        self._keep("", largest=largest, normalized=x.square().sum(1) * largest.square())

    def _see_layer(self, layer: DenseLayer, forward: ForwardPass, rows: int) -> None:
        """‖J W‖₂: W's own norm at the scores, by iteration before them; and ‖x‖ or σ_min(X)."""
        n, calls = len(forward.f), forward.calls[layer.name]
        x = torch.cat([layer.arrange_input(given, n) for given, _ in calls], 1)[:rows]
        self._keep(layer.name, x_norm=smallest_singular_value(x))
        if layer.tokens > 1 or layer.patches is not None:
            return
        ((_, z),) = calls
        if z.numel() == forward.f.numel() and torch.equal(z.flatten(), forward.f.flatten()):
            found: Tensor | None = torch.full((n,), self._norms[layer.name], dtype=torch.float64)
        else:
            W, J = layer.weight(self._capture.network).double(), jacobian_products(forward.f, z)
            K = JacobianProducts(lambda w: J.transposed(w) @ W, lambda v: J.times(v @ W.T))
            found = self._found(K, forward.f)
        if found is not None:
            self._keep(layer.name, largest=found[:rows])

    def _see_draws(self, forward: ForwardPass, batch: Batch) -> None:
        """Which outputs move a score, and Σ_p x_p² ‖∂f/∂x_p‖² of the input and of the first layer's."""
        (n, _), rows, zs = forward.f.shape, batch.rows, {k: [z for _, z in v] for k, v in forward.calls.items()}
        targets = [*(z for each in zs.values() for z in each), *([] if forward.leaf is None else [forward.leaf])]
        moving = {layer.name: torch.zeros(rows, layer.out_features) > 0 for layer in self._capture.layers}
        at_input, at_first = torch.zeros(2, rows, dtype=torch.float64)
        for _ in range(DRAWS):
            v = self._random(forward.f)
            slopes = iter(torch.autograd.grad(forward.f, targets, v, retain_graph=True, materialize_grads=True))
            for layer in self._capture.layers:
                g = torch.cat([layer.arrange(next(slopes), n) for _ in zs[layer.name]], 1)[:rows]  # Jᵀ v [n, T, out]
                moving[layer.name] |= (g != 0).any(1).cpu()
                if layer is self._first and layer.tokens == 1:
                    W, x = layer.weight(self._capture.network).double(), forward.calls[layer.name][0][0]
                    at_first += ((g[:, 0].double() @ W) * x.reshape(n, -1)[:rows]).square().sum(1).cpu() / DRAWS
            if forward.leaf is not None:
                at_input += (next(slopes) * forward.leaf.detach())[:rows].double().flatten(1).square().sum(
                    1
                ).cpu() / DRAWS
        for name, some in moving.items():
            self._active[name] = self._active.get(name, 0) + some.sum(0)
        self._keep("", invariant=at_input, first_invariant=at_first)

    def finish(self) -> ManyScores:
        """Answers, after the last batch."""
        layers = {layer.name: self._layer(layer) for layer in self._capture.layers}
        given, invariant = self._of("", "largest"), self._of("", "invariant")
        entering = None
        if given is not None and invariant is not None:
            normalized = self._of("", "normalized")
            assert normalized is not None
            entering = InputColumns(given, None, None, None, normalized, invariant, None)
        first_invariant = self._of("", "first_invariant")
        assert first_invariant is not None
        return ManyScores(entering, layers, self._first, first_invariant, self._error, self._skipped)

    def _layer(self, layer: DenseLayer) -> LayerColumns:
        x_norm = self._of(layer.name, "x_norm")
        assert x_norm is not None
        return LayerColumns(
            largest=self._of(layer.name, "largest"),
            frobenius=None,
            log_volume=None,
            gradient=None,
            x_norm=x_norm,
            layer=layer,
            spectral_norm=self._norms[layer.name],
            alone=closed_parameters(self._audit.network, layer)[0],
            active=self._active[layer.name].tolist(),
            skip=None,
        )

    def _found(self, products: JacobianProducts, f: Tensor) -> Tensor | None:
        """‖K‖₂ [n]; None where the network cannot be differentiated twice."""
        if self._skipped is not None:
            return None
        try:
            norms = largest_norms(products, self._random(f).double())
        except RuntimeError:  # "derivative for … is not implemented": a fused kernel in the network
            self._skipped = NOT_TWICE
            return None
        self._error = max(self._error, float(norms.error.max()))
        return norms.largest

    def _random(self, f: Tensor) -> Tensor:
        return torch.randn(f.shape, generator=self._generator, dtype=torch.float64).to(f)

    def _keep(self, whose: str, **values: Tensor) -> None:
        for name, value in values.items():
            self._columns[whose, name].append(column(value.detach()))

    def _of(self, whose: str, name: str) -> Array | None:
        parts = self._columns.get((whose, name))
        return None if parts is None else np.concatenate(parts)


# ‖K‖₂ of every sample's Jacobian K = ∂f/∂x without forming it: Lanczos steps on K Kᵀ, all samples of a batch at once.
#
# A step takes K v = K Kᵀ w: one backward pass for Kᵀ w, and one through the graph of a backward pass for K v, since Kᵀ
# w is linear in w and its derivative along w is K. The largest Ritz value θ never exceeds λ_max of K Kᵀ, and an
# eigenvalue lies within its residual, so that half the residual over θ bounds the relative error of √θ.


LEAST_STEPS = 6  # before convergence is believed: an early small residual may belong to another eigenvalue
MOST_STEPS = 24
TOLERANCE = 1e-3  # relative error of a norm

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Norms:
    """Of n Jacobians."""

    largest: Tensor  # [n]  ‖K‖₂, float64
    error: Tensor  # [n]  bound of its relative error


@dataclass(frozen=True)
class JacobianProducts:
    """Products with K [C, D] of each of n samples."""

    transposed: Product  # w [n, C] → Kᵀ w [n, D]
    times: Product  # v [n, D] → K v [n, C]


def jacobian_products(f: Tensor, x: Tensor) -> JacobianProducts:
    """Of K = ∂f/∂x for scores f [n, C] and a tensor x [n, …] of their graph, a sample's scores its own x's alone.

    Raises RuntimeError where the network cannot be differentiated twice.
    """
    w = torch.zeros_like(f, requires_grad=True)
    (back,) = torch.autograd.grad(f, x, w, create_graph=True, materialize_grads=True)

    def transposed(values: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(f, x, values.to(f), retain_graph=True, materialize_grads=True)
        return found.flatten(1).double()

    def times(values: Tensor) -> Tensor:
        if not back.requires_grad:  # the scores do not depend on x
            return torch.zeros_like(f, dtype=torch.float64)
        (found,) = torch.autograd.grad(
            back, w, values.to(f).reshape(x.shape), retain_graph=True, materialize_grads=True
        )
        return found.double()

    return JacobianProducts(transposed, times)


def largest_norms(products: JacobianProducts, start: Tensor) -> Norms:
    """‖K‖₂ of every sample, from a random start [n, C], float64.

    >>> K = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]], dtype=torch.float64)
    >>> at_hand = JacobianProducts(lambda w: (w[:, None] @ K)[:, 0], lambda v: (K @ v[..., None])[..., 0])
    >>> largest_norms(at_hand, torch.ones(1, 2, dtype=torch.float64)).largest.round(decimals=6)
    tensor([4.], dtype=torch.float64)
    """
    basis = [start / torch.linalg.vector_norm(start, dim=1, keepdim=True)]
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    most = min(MOST_STEPS, start.shape[1])
    for step in range(1, most + 1):
        v = products.transposed(basis[-1])
        diagonal.append(v.square().sum(1))
        rest = products.times(v)
        for _ in range(2):  # against all vectors, twice: rounding would bring back what is already there
            Q = torch.stack(basis, 1)  # [n, step, C]
            rest = rest - (Q.mT @ (Q @ rest[..., None]))[..., 0]
        beside.append(torch.linalg.vector_norm(rest, dim=1))
        norms = _ritz(diagonal, beside)
        if step == most or (step >= LEAST_STEPS and bool((norms.error <= TOLERANCE).all())):
            break
        basis.append(rest / beside[-1].clamp(min=torch.finfo(torch.float64).tiny)[:, None])
    return norms


def _ritz(diagonal: list[Tensor], beside: list[Tensor]) -> Norms:
    """From the tridiagonal matrix of the steps so far; the last entry of `beside` is what lies outside the basis."""
    T = torch.diag_embed(torch.stack(diagonal, 1))
    if len(diagonal) > 1:
        off = torch.stack(beside[:-1], 1)
        T = T + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = eigh(T)
    top = values[:, -1].clamp(min=0)
    residual = beside[-1] * vectors[:, -1, -1].abs()
    error = torch.where(top > 0, residual / (2 * top), torch.zeros_like(top))
    return Norms(top.sqrt(), error)
