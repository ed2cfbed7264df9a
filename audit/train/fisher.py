"""Jia & Su's regularizer (2020, Algorithm 1): training that keeps the train samples' gradients small and alike.

A mini-batch B is split into M parts B_i with gradients g_i. A small step along −g_i lowers the part's loss by about
α ‖g_i‖², so R below is α times the mean ‖g_i‖², an estimate of the trace of the Fisher information, without a second
derivative.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

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
