"""Regularizers for training loops, from the papers behind the measures.

from audit.train import FisherRegularizer, flatness_penalty
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from audit.errors import UsageError
from audit.network.hooks import hooked, scores
from audit.network.loss import LOSS_OF_TASK

__all__ = ["FisherRegularizer", "flatness_penalty"]

# Jia & Su's regularizer (2020, Algorithm 1): training that keeps the train samples' gradients small and alike.
#
# A mini-batch B is split into M parts B_i with gradients g_i. A small step along −g_i lowers the part's loss by about α
# ‖g_i‖², so R below is α times the mean ‖g_i‖², an estimate of the trace of the Fisher information, without a second
# derivative.


Loss = Callable[[Tensor, Tensor], Tensor]


class FisherRegularizer:
    """L(B, w) + β R(w), with R(w) = L(B, w) − Σ_i |B_i|/|B| L(B_i, w − α g_i), g_i held fixed (Eq. 7).

    `loss` takes scores and labels and answers with the mean over samples. For any optimizer:

        objective = FisherRegularizer(network, nn.functional.cross_entropy, beta=10.0, starting_epoch=50)
        for epoch, (x, y) in batches:
            optimizer.zero_grad()
            objective(x, y, epoch).backward()
            optimizer.step()

    The paper has α = 1e-4 and M = 8 everywhere, β from 1 to 100 by validation, and begins late: before the first
    drop of the rate it does harm.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Loss,
        *,
        alpha: float = 1e-4,
        beta: float = 10.0,
        parts: int = 8,
        starting_epoch: int = 0,
    ) -> None:
        self.network, self.loss = network, loss
        self.alpha, self.beta, self.parts, self.starting_epoch = alpha, beta, parts, starting_epoch

    def __call__(self, x: Tensor, y: Tensor, epoch: int | None = None) -> Tensor:
        """The objective of one mini-batch; before the starting epoch it is the loss alone."""
        plain = self.loss(self.network(x), y)
        if epoch is not None and epoch < self.starting_epoch:
            return plain
        return plain + self.beta * self.penalty(x, y, plain)

    def penalty(self, x: Tensor, y: Tensor, plain: Tensor | None = None) -> Tensor:
        """R; `plain`: the loss of the whole mini-batch, where it is known already."""
        plain = self.loss(self.network(x), y) if plain is None else plain
        count = min(self.parts, len(x))
        pairs = zip(x.tensor_split(count), y.tensor_split(count), strict=True)
        shifted = [len(part) / len(x) * self._after_step(part, labels) for part, labels in pairs]
        return plain - torch.stack(shifted).sum()

    def _after_step(self, x: Tensor, y: Tensor) -> Tensor:
        """L(B_i, w − α g_i): a function of w, with g_i held fixed."""
        w = {name: value for name, value in self.network.named_parameters() if value.requires_grad}
        g = torch.autograd.grad(self.loss(self.network(x), y), list(w.values()))
        moved = {name: value - self.alpha * step for (name, value), step in zip(w.items(), g, strict=True)}
        return self.loss(functional_call(self.network, moved, (x,)), y)


# A penalty on κ_τ, the reparameterization-invariant flatness of Petzka et al. (2019), differentiable in the weights.
#
# For a dense layer z = W x + b, with J = ∂f/∂z and Λ the curvature of the loss in the scores f,
#
#     κ_τ = ‖W‖² Tr H,    Tr H = mean_i ‖x_i‖² Tr(J_iᵀ Λ_i J_i)
#
# where the network behind the layer is piecewise linear; of a curved one this is the Gauss–Newton part. With Λ = Lᵀ L
# the inner trace is Σ_c ‖Jᵀ Lᵀ e_c‖², or the mean of ‖Jᵀ Lᵀ s‖² over random signs s: one backward pass instead of C.


def flatness_penalty(
    network: nn.Module, x: Tensor, layers: Sequence[str], *, task: str = "classification", signs: int = 0
) -> Tensor:
    """Σ κ_τ over the dense layers of these names, on the samples x [n, …]; the labels play no part in it.

    `signs`: random signs instead of all scores, unbiased, for networks with many scores. To train with it:

        for x, y in batches:
            optimizer.zero_grad()
            loss = cross_entropy(network(x), y) + 1e-3 * flatness_penalty(network, x, ["fc2"])
            loss.backward()
            optimizer.step()
    """
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(path: str, given: tuple[Tensor, ...], answer: Tensor) -> None:
        seen[path] = given[0], answer

    with hooked(network, {path: lambda _m, i, o, path=path: keep(path, i, o) for path in _dense(network, layers)}):
        f = scores(network, x)
    z = [seen[path][1] for path in layers]
    squares = [torch.zeros((), dtype=f.dtype, device=f.device) for _ in layers]
    for v in _probes(f, signs):
        u = LOSS_OF_TASK[task].curvature_root_transposed_times(f, f[:, 0], v)  # of tags alone would labels matter
        for place, back in enumerate(torch.autograd.grad(f, z, u, create_graph=True)):
            norms = seen[layers[place]][0].square().sum(-1)
            squares[place] = squares[place] + (norms * back.square().sum(-1)).mean() / max(1, signs)
    weights = [network.get_submodule(path).get_parameter("weight") for path in layers]
    return torch.stack([w.square().sum() * trace for w, trace in zip(weights, squares, strict=True)]).sum()


def _dense(network: nn.Module, layers: Iterable[str]) -> list[str]:
    known = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    for path in layers:
        if path not in known:
            raise UsageError(f"flatness_penalty: {path!r} is no dense layer; the network has {', '.join(known)}.")
    return list(layers)


def _probes(f: Tensor, signs: int) -> Iterable[Tensor]:
    """Unit vectors of all scores, or random signs [n, C]."""
    if signs:
        return (torch.randint(2, f.shape, device=f.device).to(f.dtype) * 2 - 1 for _ in range(signs))
    return (row.expand_as(f) for row in torch.eye(f.shape[1], dtype=f.dtype, device=f.device))
