"""The dense tail of a network on the model's own features: cheap twins for what they can answer.

Their inner numbers are not those of whole twins, so they are no band; they tell what more data are worth, whether test
is like train, whose the errors are, and what changes of the head do.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.errors import ModelError
from audit.maths.blocks import blocks
from audit.network.hooks import hooked, scores
from audit.twins.stack import chain_of
from audit.twins.training import Architecture

PROBED, AT_ONCE = 8, 256


@dataclass(frozen=True)
class Tail:
    """The layers from one dense layer to the scores."""

    trunk: nn.Module  # the whole network, which stays as it is
    first: str  # path of the tail's first layer in it
    architecture: Architecture

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the first layer of the tail is given [n, features]."""
        parts = [_given(self.trunk, self.first, x[part]) for part in blocks(len(x), 1, AT_ONCE)]
        return torch.cat(parts)


@torch.no_grad()
def tail_of(network: nn.Module, x: Tensor, name: str) -> Tail:
    """The longest chain of dense layers that ends in the scores; checked on the samples x [n, …]."""
    order: list[str] = []
    leaves = [path for path, module in network.named_modules() if path and not any(True for _ in module.children())]
    with hooked(network, {path: lambda *_, path=path: order.append(path) for path in leaves}):
        scores(network, x[:PROBED])
    dense = [place for place, path in enumerate(order) if isinstance(network.get_submodule(path), nn.Linear)]
    for place in dense:
        given = _given(network, order[place], x[:PROBED])
        layers = OrderedDict((path.replace(".", "_"), network.get_submodule(path)) for path in order[place:])
        tail = nn.Sequential(layers)
        chain = chain_of(tail, given) if given.dim() == 2 else None
        if chain is not None and torch.allclose(tail(given), scores(network, x[:PROBED]), rtol=1e-4, atol=1e-4):
            return Tail(network, order[place], Architecture(tail, chain))
    raise ModelError(
        f"{name}: does not end in dense layers one behind the other, so it has no tail to be trained anew."
    )


def _given(network: nn.Module, path: str, x: Tensor) -> Tensor:
    kept: list[Tensor] = []
    with hooked(network, {path: lambda _module, inputs, _output: kept.append(inputs[0])}):
        network(x)
    return kept[-1]
