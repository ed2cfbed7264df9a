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

from audit.maths.decompositions import largest_singular_value
from audit.measures.contract import Audit
from audit.measures.sensitivity.columns import SkipColumns, column, joined
from audit.network.hooks import hooked
from audit.network.layers import DenseLayer
from audit.network.record import Record

ROUNDING = 1e5  # in units of the arithmetic's ε: how far J W may be from ∂f/∂x where no other way leads on


def whole_jacobians(network: nn.Module, layers: Sequence[DenseLayer], x: Tensor, rows: int) -> dict[str, Tensor]:
    """∂f/∂x [rows, C, T, in] of each layer by its name; x is a full batch of which the first `rows` count."""
    inputs: dict[str, list[Tensor]] = defaultdict(list)

    def keep(name: str) -> Callable[..., None]:
        return lambda _module, given, _answer: inputs[name].append(given[0])

    def differentiable(_module: nn.Module, given: tuple[Tensor, ...]) -> Tensor | None:
        return None if given[0].requires_grad else given[0].detach().requires_grad_()  # a constant, such as a mask

    # every activation gets a derivative: those before the first layer follow from parameters, or from the input itself
    values = {name: parameter.detach().requires_grad_() for name, parameter in network.named_parameters()}
    x = x.clone().requires_grad_() if x.is_floating_point() else x
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        before = {layer.module: differentiable for layer in layers}
        with hooked(network, {layer.module: keep(layer.name) for layer in layers}, before):
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


class SkipFold:
    """The two norms of Eq. 17 for every layer whose input is also used elsewhere; which, the first chunk shows."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._bypassed = [layer for layer in audit.layers if not layer.cut_point and layer.patches is None]
        self._parts: dict[str, list[SkipColumns]] = defaultdict(list)

    def see(self, record: Record, x: Tensor) -> None:
        """Takes in one chunk; x its inputs."""
        if not self._bypassed:
            return
        n, batch = len(x), self._audit.capture.fixed_batch
        filled = x if batch is None else x[torch.arange(batch, device=x.device) % n]
        leading_on = []
        for name, whole in whole_jacobians(self._audit.network, self._bypassed, filled, n).items():
            layer = record.layers[name]
            past = (whole - layer.J @ self._audit.weight(layer.layer).to(layer.J.dtype)).flatten(2)
            if record.start == 0 and past.abs().max() <= ROUNDING * self._audit.epsilon * whole.abs().max():
                continue
            leading_on.append(layer.layer)
            norms = (largest_singular_value(part) for part in (whole.flatten(2), past))
            self._parts[name].append(SkipColumns(*map(column, norms)))
        self._bypassed = leading_on

    def of(self, name: str) -> SkipColumns | None:
        """A layer's columns; None where nothing leads past it."""
        return joined(self._parts[name]) if name in self._parts else None
