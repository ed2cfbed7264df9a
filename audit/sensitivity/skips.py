"""The whole derivative ∂f/∂x at a layer's input: through the layer, and past it where a skip connection leads on.

What the layer itself carries is J W. The rest of ∂f/∂x is what the skip carries: J in Eq. 16 of the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.layers import DenseLayer
from audit.watch import hooked


def whole_jacobians(network: nn.Module, layers: Sequence[DenseLayer], x: Tensor, rows: int) -> dict[str, Tensor]:
    """∂f/∂x [rows, C, T, in] of each layer by its name; x is a full batch of which the first `rows` count."""
    inputs: dict[str, list[Tensor]] = defaultdict(list)

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, given, _answer: inputs[name].append(given[0])

    # every activation gets a derivative: those before the first layer follow from parameters, or from the input itself
    values = {name: parameter.detach().requires_grad_() for name, parameter in network.named_parameters()}
    x = x.clone().requires_grad_() if x.is_floating_point() else x
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        with hooked(network, {layer.module: keep(layer.name) for layer in layers}):
            f: Tensor = functional_call(network, values, (x,)).reshape(len(x), -1)
        targets = [given for layer in layers for given in inputs[layer.name]]
        rows_of_f = [torch.autograd.grad(f_c, targets, retain_graph=True, materialize_grads=True) for f_c in f.sum(0)]
    columns = iter([torch.stack(column) for column in zip(*rows_of_f, strict=True)])
    found = {}
    for layer in layers:
        pieces = [next(columns) for _ in inputs[layer.name]]
        by_call = [torch.stack([layer.arrange(part, len(x)) for part in piece], 1) for piece in pieces]
        found[layer.name] = torch.cat(by_call, 2)[:rows]
    return found
