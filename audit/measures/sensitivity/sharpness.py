"""How the scores answer to the parameters: squared gradients of a dense layer, the trace of ½‖f − y‖², random changes.

A dense layer's gradient is ∇_W f_c = Σ_t J_ct x_tᵀ and ∇_b f_c = Σ_t J_ct. With one token its square factors,
‖∇_W f‖_F² = ‖J‖_F² ‖x‖², and is never formed; with several, the cross terms matter and it is formed in small blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.blocks import HELD, blocks, in_blocks
from audit.maths.intervals import standard_error
from audit.measures.contract import Audit, feeds_itself
from audit.measures.sensitivity.columns import Array, column
from audit.model.base import as_fed
from audit.network import dense_only
from audit.network.record import LayerProducts, LayerRecord, Record
from audit.network.residual_traces import is_multilinear

RHO = 0.1  # relative size of a random change of the weights: the paper's variance is 0.01 θ²


@dataclass(frozen=True)
class DenseSquares:
    """Σ over the scores of squared gradients, sample by sample [n], float64."""

    weight: Tensor  # ‖∇_W f‖_F²
    bias: Tensor  # ‖∇_b f‖_F²
    adaptive_weight: Tensor  # Σ W_oi² ‖∂f/∂W_oi‖²
    adaptive_bias: Tensor  # Σ b_o² ‖∂f/∂b_o‖²


def dense_squares(products: LayerProducts, W: Tensor, b: Tensor | None) -> DenseSquares:
    """Of one dense layer on a chunk; b is None where it has no bias."""
    layer = products.layer
    squared_bias = torch.zeros(W.shape[0], dtype=torch.float64, device=W.device) if b is None else b.double().square()
    W2, x = W.double().square(), layer.x.double()
    if x.shape[1] == 1:
        return _of_vectors(x, products.squared_jacobian, W2, squared_bias)
    return _of_tokens(x, layer.J.double(), W2, squared_bias)


def _of_vectors(x: Tensor, J2: Tensor, W2: Tensor, b2: Tensor) -> DenseSquares:
    """J2 = Σ_c J_c² [n, out]."""
    x2 = x[:, 0].square()  # [n, in]
    bias = J2.sum(1)
    return DenseSquares(bias * x2.sum(1), bias, (J2 * (x2 @ W2.T)).sum(1), J2 @ b2)


def _of_tokens(x: Tensor, J: Tensor, W2: Tensor, b2: Tensor) -> DenseSquares:
    weight, adaptive = [], []
    for part in blocks(len(x), J.shape[1] * W2.numel(), HELD):
        squared = torch.einsum("ncto,nti->ncoi", J[part], x[part]).square_().sum(1)  # [n, out, in]
        weight.append(squared.sum((1, 2)))
        adaptive.append(squared.flatten(1) @ W2.flatten())
    J2 = J.sum(2).square().sum(1)  # Σ_c (Σ_t J_ct)²
    return DenseSquares(torch.cat(weight), J2.sum(1), torch.cat(adaptive), J2 @ b2)


def weight_squares(products: LayerProducts) -> Tensor:
    """‖∇_W f‖_F² alone, sample by sample [n], float64; with several tokens, in the cheaper of two orders."""
    layer = products.layer
    if layer.x.shape[1] == 1:
        return products.squared_jacobian.sum(1) * layer.x.double().square().sum((1, 2))
    if layer.x.shape[1] <= layer.x.shape[2]:
        return in_blocks(_squares_by_tokens, layer.J, layer.x)
    parts = blocks(len(layer.x), layer.J.shape[1] * layer.W.numel(), HELD)
    return torch.cat([_squares_by_weights(layer.J[part].double(), layer.x[part].double()) for part in parts])


def _squares_by_tokens(J: Tensor, x: Tensor) -> Tensor:
    """Σ_tt′ (Σ_c J_ct·J_ct′)(x_t·x_t′)."""
    J, x = J.double().transpose(1, 2).flatten(2), x.double()  # [n, T, C·out]
    return ((J @ J.mT) * (x @ x.mT)).sum((1, 2))


def _squares_by_weights(J: Tensor, x: Tensor) -> Tensor:
    """Σ_c ‖Σ_t J_ct x_tᵀ‖²."""
    return (J.transpose(2, 3) @ x[:, None]).square_().sum((1, 2, 3))


def parameter_residual_trace(layer: LayerRecord, bias: bool) -> Tensor:
    """What the curvature of the network behind the layer adds to Tr ∇²_{W,b} l, sample by sample [n].

    Σ_{t,t′} (x_t·x_t′ + 1 with a bias) tr R^{tt′}, with R = Σ_c (∂l/∂f_c) ∂²f_c/∂z².
    """
    R, (n, T, out) = layer.residual(), layer.z.shape
    if R is None:
        return torch.zeros(n, dtype=torch.float64, device=layer.z.device)
    x = layer.x.double()
    traces = torch.einsum("ntouo->ntu", R.reshape(n, T, out, T, out))
    return (traces * (x @ x.mT + float(bias))).sum((1, 2))


def is_piecewise_linear_in(network: nn.Module, name: str, x: Tensor) -> bool:
    """Whether the scores on x are piecewise linear in the parameter `name` while all others rest.

    Then ∂²f/∂θ_j² = 0 for each of its entries. Seen by a second derivative along a random direction.
    """
    generator = torch.Generator().manual_seed(0)
    value = network.get_parameter(name).detach().clone().requires_grad_()
    direction = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no second derivative
        f: Tensor = functional_call(network, {name: value}, (x,))
        mix = torch.randn(f.shape, generator=generator, dtype=torch.float64).to(f)
        (slope,) = torch.autograd.grad((f * mix).sum(), value, create_graph=True, materialize_grads=True)
        if not slope.requires_grad:
            return True
        (second,) = torch.autograd.grad((slope * direction).sum(), value, materialize_grads=True)
    return not bool((second != 0).any())


@torch.no_grad()
def sampled_adaptive_sharpness(network: nn.Module, chunks: list[Tensor], draws: int, seed: int) -> tuple[float, float]:
    """(2/ρ²) mean [L(θ + δ) − L(θ)] with δ ~ N(0, ρ² diag θ²) and L = mean ½‖f − y‖² (Eq. 38), and its standard error.

    The targets y are the network's own scores, so that L(θ) = 0: exact interpolation, which Eq. 41 assumes.
    """
    generator = torch.Generator().manual_seed(seed)
    targets = [network(x) for x in chunks]
    samples = sum(len(x) for x in chunks)
    values = []
    for _ in range(draws):
        moved = dict(_moved(network, generator))
        loss = sum(
            float((functional_call(network, moved, (x,)) - y).double().square().sum()) / 2
            for x, y in zip(chunks, targets, strict=True)
        )
        values.append(2 / RHO**2 * loss / samples)
    found = torch.tensor(values, dtype=torch.float64)
    return float(found.mean()), float(standard_error(found, ddof=min(1, draws - 1)))


def _moved(network: nn.Module, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Every parameter after a random change in proportion to its own size."""
    for name, value in network.named_parameters():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        yield name, value * (1 + RHO * noise)


# Tr H of ½‖f − y‖² over all parameters: S(θ), and what the curvature of the network adds; or why there is none.


TRACE_COLUMNS = 1024  # second derivatives per sample, above which the exact trace is left out
NOT_TWICE = "the network cannot be differentiated twice"


class TraceFold:
    """What Tr H has beyond S(θ), sample by sample, until a reason is found that there is no such number."""

    def __init__(self, audit: Audit, beyond_dense: tuple[str, ...]) -> None:
        self._audit, self._dense = audit, dense_only(audit.layers)
        self._parts: list[Array] = []
        self.skipped = self._why_none(beyond_dense)

    def see(self, record: Record) -> None:
        """Adds a chunk, where the network behind a layer is curved."""
        curved = [record.layers[layer.name] for layer in self._dense]
        curved = [layer for layer in curved if layer.residual_times is not None]
        self.skipped = self.skipped or self._why_not_here(record, curved)
        if self.skipped is None:
            extra: Tensor = torch.zeros(len(record.f), dtype=torch.float64, device=record.f.device)
            for layer in curved:
                extra = extra + parameter_residual_trace(layer, layer.layer.bias)
            self._parts.append(column(extra))

    def parts(self) -> list[Array]:
        """Chunk after chunk; nothing where it was given up half-way."""
        return [] if self.skipped else self._parts

    def _why_not_here(self, record: Record, curved: list[LayerRecord]) -> str | None:
        if any(record.layers[layer.name].curvature != "exact" for layer in self._dense):
            return NOT_TWICE
        if curved and self._audit.loss.name != "mse":
            return "the network is curved in its weights and ½‖f − y‖² is not its loss, so the trace has no targets"
        if any(layer.layer.tokens * layer.layer.out_features > TRACE_COLUMNS for layer in curved):
            return f"a curved layer has more than {TRACE_COLUMNS} outputs: the exact trace would cost that many passes"
        return None

    def _why_none(self, beyond_dense: tuple[str, ...]) -> str | None:
        """Weights that act on their own answers enter squared; elsewhere, curved scores have no cheap trace."""
        audit = self._audit
        x = as_fed(audit.network, audit.train.x[torch.arange(audit.capture.fixed_batch or 4) % len(audit.train.x)])
        if is_multilinear(audit.network, x):
            return None
        if any(layer.calls > 1 and feeds_itself(audit, layer) for layer in self._dense):
            return "a layer is fed by its own earlier answers, so the scores are not linear in its weights"
        try:
            curved = next((name for name in beyond_dense if not is_piecewise_linear_in(audit.network, name, x)), None)
        except RuntimeError:
            return NOT_TWICE
        return None if curved is None else f"the scores are curved in {curved}, which no dense layer holds"
