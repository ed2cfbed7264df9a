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
    """A network in float64 and eval mode with its data.

    `layers` names what is measured, first to last, `convolutions` those of them that are measured over their patches,
    `shared` those whose weights act in another place, too, `fed_by_itself` those that act on their own answers.
    """

    network: nn.Module
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    task: str
    layers: tuple[str, ...]
    convolutions: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    fed_by_itself: tuple[str, ...] = ()
    partner_space: str = "input"

    @property
    def dense(self) -> tuple[str, ...]:
        """The layers that a network's sums run over: no convolutions, unless there is nothing else."""
        return tuple(path for path in self.layers if path not in self.convolutions) or self.layers

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

    def parameter(self, path: str) -> str:
        """The name that the network lists a layer's weights under: a shared one has the name of its first owner."""
        weight = self.network.get_submodule(path).weight
        return next(name for name, value in self.network.named_parameters() if value is weight)

    def weight(self, path: str) -> Tensor:
        """W [out, in]; for a convolution, in is a patch."""
        return self.network.get_submodule(path).weight.detach().flatten(1)

    def with_weight(self, path: str, W: Tensor) -> dict[str, Tensor]:
        """The network's parameters with W in place of a layer's weights."""
        name = self.parameter(path)
        return {name: W.reshape(self.network.get_parameter(name).shape)}

    def given(self, path: str, x: Tensor) -> Tensor:
        """X [T, in]: the vectors that a layer is given for one sample."""
        seen: list[Tensor] = []
        module = self.network.get_submodule(path)
        hook = module.register_forward_hook(lambda _m, i, _z: seen.append(vectors_in(module, i[0])))
        self.network(x[None])
        hook.remove()
        return torch.cat(seen).detach()


def vectors_in(module: nn.Module, given: Tensor) -> Tensor:
    """What a layer is given for one sample as rows [T, in]; for a convolution, its patches."""
    if isinstance(module, nn.Conv2d):
        return F.unfold(given, module.kernel_size, module.dilation, module.padding, module.stride)[0].T
    return given.reshape(-1, given.shape[-1])


def vectors_out(module: nn.Module, answer: Tensor) -> Tensor:
    """What a layer answers for one sample as rows [T, out]."""
    if isinstance(module, nn.Conv2d):
        return answer.flatten(2)[0].T
    return answer.reshape(-1, answer.shape[-1])


def mean(values: list[float] | Tensor) -> float:
    values = values.tolist() if isinstance(values, Tensor) else values
    return math.fsum(values) / len(values)
