"""Local maps, sample by sample: from every layer's input to the scores, and from the model's input to the scores."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from audit.maths.blocks import in_blocks
from audit.maths.decompositions import LocalMap, smallest_singular_value, spectral_norm
from audit.measures.contract import Audit
from audit.measures.sensitivity.columns import (
    Array,
    InputColumns,
    LayerColumns,
    MapColumns,
    column,
    input_columns,
    invariant_at,
    joined,
    layer_map,
)
from audit.measures.sensitivity.skips import SkipFold
from audit.model.batches import as_fed
from audit.model.packing import continuous_only
from audit.network.layers import DenseLayer, dense_only
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
