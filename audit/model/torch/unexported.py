"""A module that could not be exported: run as it is, one of its outputs picked, its last activation left out."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from audit.model.torch.outputs import named_outputs


class Picked(nn.Module):
    """A network reduced to one of its outputs."""

    def __init__(self, network: nn.Module, output: str) -> None:
        super().__init__()
        self.network, self.output = network, output

    def forward(self, x: Tensor) -> Tensor:
        """The audited output alone."""
        picked: Tensor = named_outputs(self.network(x))[self.output]
        return picked


def picked(network: nn.Module, output: str, x: Tensor) -> tuple[nn.Module, str]:
    """A copy of `network` that yields scores, and which of `HEADS` was left out to get them."""
    network = copy.deepcopy(network)
    _fold_weights(network)
    last, head = _last_activation(network, output, x)
    if last is not None:
        owner, _, name = last.rpartition(".")
        setattr(network.get_submodule(owner), name, nn.Identity())
    return Picked(network, output).eval().requires_grad_(False), head


def _fold_weights(network: nn.Module) -> None:
    """Dense layers whose weight is computed anew in every pass, as weight_norm does, get that weight as a parameter."""
    for path, module in list(network.named_modules()):
        if isinstance(module, nn.Linear) and not isinstance(vars(module)["_parameters"].get("weight"), nn.Parameter):
            plain = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            plain.weight = nn.Parameter(module.weight.detach().clone())
            if module.bias is not None:
                plain.bias = nn.Parameter(module.bias.detach().clone())
            owner, _, name = path.rpartition(".")
            setattr(network.get_submodule(owner), name, plain)


def _last_activation(network: nn.Module, output: str, x: Tensor) -> tuple[str | None, str]:
    """Path and head of the activation module, called once, whose answer is the output itself."""
    calls: list[tuple[str, Any]] = []
    handles = [
        module.register_forward_hook(lambda _module, _inputs, answer, path=path: calls.append((path, answer)))
        for path, module in network.named_modules()
        if _head(module) != "none"
    ]
    with torch.no_grad():
        scores = named_outputs(network(x))[output]
    for handle in handles:
        handle.remove()
    for path, answer in calls:
        if answer is scores and [other for other, _ in calls].count(path) == 1:
            return path, _head(network.get_submodule(path))
    return None, "none"


def _head(module: nn.Module) -> str:
    if isinstance(module, nn.Softmax) and module.dim in (-1, 1):
        return "softmax"
    if isinstance(module, nn.LogSoftmax) and module.dim in (-1, 1):
        return "log_softmax"
    return "sigmoid" if isinstance(module, nn.Sigmoid) else "none"
