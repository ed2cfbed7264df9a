"""Local maps, sample by sample: from every layer's input to the scores, and from the model's input to the scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.blocks import in_blocks
from audit.maths.decompositions import LocalMap, largest_singular_value, smallest_singular_value
from audit.maths.gram import spectral_norm
from audit.measures.contract import Audit
from audit.measures.sensitivity.columns import (
    Array,
    InputColumns,
    LayerColumns,
    MapColumns,
    SkipColumns,
    column,
    input_columns,
    invariant_at,
    joined,
    layer_map,
)
from audit.model.base import as_fed
from audit.model.packing import continuous_only
from audit.network import DenseLayer, dense_only
from audit.network.hooks import hooked
from audit.network.parameter_gradients import closed_parameters
from audit.network.record import LayerRecord, Products, Record


class MapFold:
    """The columns of all maps, filled chunk by chunk."""

    def __init__(self, audit: Audit, share: bool = True) -> None:
        self._audit, self._share = audit, share  # whether other measures will ask for the same products
        self.first = first_layer(dense_only(audit.layers))
        self._input: list[InputColumns] = []
        self._maps: dict[str, list[MapColumns]] = {layer.name: [] for layer in audit.layers}
        self._active: dict[str, Tensor] = {}
        self._skips = SkipFold(audit)

    def see(self, record: Record, products: Products, x: Tensor, squares: Mapping[str, Tensor]) -> Array:
        """Takes in one chunk; x its inputs as they are stored, squares ‖∇_W f‖_F² [n] of each layer.

        Returns Σ_p x_p² ‖∂f/∂x_p‖² [n] at the first layer's own input.
        """
        audit, entrance_map = self._audit, None
        for name, layer in list(products.layers.items()):
            mapped = layer_map(layer, audit.epsilon)
            self._keep(layer.layer, mapped, squares[name])
            if name == record.entrance == self.first.name:
                entrance_map = mapped
            elif not self._share and name != record.entrance:
                products.layers[name] = type(layer)(record, name)
        invariant = invariant_at(products.layers[self.first.name])
        x = as_fed(audit.network, x)
        sizes = continuous_only(audit.model.input, x.flatten(1).double())
        entering = input_columns(products, sizes, entrance_map, invariant, audit.epsilon)
        if entering is not None:
            self._input.append(entering)
        self._skips.see(record, x)
        return column(invariant)

    def input(self) -> InputColumns | None:
        """Those of the model's input; None where it has no derivative."""
        return joined(self._input) if self._input else None

    def layers(self) -> dict[str, LayerColumns]:
        """Those of every layer, by name."""
        return {layer.name: self._layer(layer) for layer in self._audit.layers}

    def _layer(self, layer: DenseLayer) -> LayerColumns:
        return LayerColumns(
            **vars(joined(self._maps[layer.name])),
            layer=layer,
            spectral_norm=spectral_norm(self._audit.weight(layer)),
            alone=closed_parameters(self._audit.network, layer)[0],
            active=self._active[layer.name].tolist(),
            skip=self._skips.of(layer.name),
        )

    def _keep(self, record: LayerRecord, local: LocalMap, squares: Tensor) -> None:
        """A layer's columns, and on how many samples each of its outputs moves a score."""
        name, x_norm = record.layer.name, smallest_singular_value(record.x)
        parts = (local.largest, local.frobenius, local.log_volume, squares, x_norm)
        self._maps[name].append(MapColumns(*map(column, parts)))
        moving = in_blocks(lambda J: (J != 0).any(2).any(1), record.J).sum(0)  # [n, C, T, out] → [out]
        self._active[name] = self._active.get(name, 0) + moving


def first_layer(layers: tuple[DenseLayer, ...]) -> DenseLayer:
    """The layer that the bounds start from: the one fed by the input, best alone; else the first of all."""
    fed = [layer for layer in layers if layer.fed_by_input]
    return next((layer for layer in fed if layer.cut_point), (fed or list(layers))[0])


# The whole derivative ∂f/∂x at a layer's input: through the layer, and past it where a skip connection leads on.
#
# What the layer itself carries is J W. The rest of ∂f/∂x is what the skip carries: J in Eq. 16 of the paper.


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
