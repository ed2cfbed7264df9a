"""A network, its data and the losses that everything else is about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

Block = dict[str, Any]
DUAL = 1e-9  # beyond it, times the largest loss, the duality does not hold
ZERO = 1e-100  # an input smaller than this has no inverse


@dataclass(frozen=True)
class Problem:
    """A network in float64 and eval mode with its data; `dense` names its dense layers, first to last."""

    network: nn.Module
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    task: str
    dense: tuple[str, ...]

    def scores(self, x: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """f [n, C] under the network's own parameters, or with some exchanged."""
        return functional_call(self.network, values or {}, (x,)).reshape(len(x), -1)

    def losses(self, x: Tensor, y: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """[n]; −ln p_y is written without ever forming 1 − p_y."""
        f = self.scores(x, values)
        if self.task == "regression":
            return (f - y.reshape(f.shape)).square().sum(1) / 2
        if self.task == "binary":
            return F.softplus(torch.where(y == 1, -f[:, 0], f[:, 0]), threshold=100)
        mine = F.one_hot(y, f.shape[1]).bool()
        others = (f - f[mine][:, None]).masked_fill(mine, -torch.inf)
        return F.softplus(others.logsumexp(1), threshold=100)

    def loss(self, x: Tensor, y: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """Of one sample."""
        return self.losses(x[None], y[None], values)[0]

    def wrong(self, x: Tensor, y: Tensor) -> Tensor:
        """[n], 1 for a wrong answer."""
        f = self.scores(x)
        answers = (f[:, 0] >= 0).long() if self.task == "binary" else f.argmax(1)
        return (answers != y).double()

    def weight(self, path: str) -> Tensor:
        return self.network.get_submodule(path).weight.detach()

    def inside(self, path: str, x: Tensor) -> tuple[Tensor, Tensor]:
        """What a layer is given and what it answers."""
        seen: list[tuple[Tensor, Tensor]] = []
        hook = self.network.get_submodule(path).register_forward_hook(lambda _m, i, z: seen.append((i[0], z)))
        self.network(x)
        hook.remove()
        return seen[0][0].detach(), seen[0][1].detach()


def mean(values: list[float] | Tensor) -> float:
    values = values.tolist() if isinstance(values, Tensor) else values
    return math.fsum(values) / len(values)
