"""The local maps of a network with many scores: their norms by iteration, and no volume, rank or dimension.

A layer with one vector per sample has K = J W, whose norm takes steps through the network behind it; one over tokens
would take as many steps for each, and is left out. Sums over all scores come from random directions v with E[v vᵀ] = 1.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.decompositions import smallest_singular_value, spectral_norm
from audit.measures.contract import Audit
from audit.measures.sensitivity.columns import Array, InputColumns, LayerColumns, column
from audit.measures.sensitivity.maps import first_layer
from audit.measures.sensitivity.sharpness import NOT_TWICE
from audit.model.packing import continuous_only
from audit.network.backward import ForwardPass
from audit.network.capture import Batch, Capture
from audit.network.jacobian_norms import JacobianProducts, jacobian_products, largest_norms
from audit.network.layers import DenseLayer, dense_only
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
