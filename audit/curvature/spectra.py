"""The eigenpairs that several measures ask for, found once per layer."""

from __future__ import annotations

from torch import Tensor

from audit.curvature.hessian import LayerHessian
from audit.curvature.spectrum import EigenPairs, all_eigenpairs, top_eigenpairs
from audit.layers import DenseLayer
from audit.records import Records

TOLERANCE = 1e-7  # relative error asked of λ_max where nothing else is wanted


class Spectra:
    """Eigenpairs of each layer's Hessian over the train records.

    Only the largest pair of a layer is remembered: a whole basis may take more memory than everything else.
    """

    def __init__(self, train: Records, directions: int, seed: int) -> None:
        self._train, self._directions, self._seed = train, directions, seed
        self._largest: dict[str, tuple[float, Tensor, float]] = {}

    def leading(self, layer: DenseLayer) -> EigenPairs:
        """All eigenpairs of a layer of up to 4,096 weights, the largest `directions` of a larger or too curved one."""
        hessian = LayerHessian(self._train, layer)
        if hessian.formable:
            pairs = all_eigenpairs(hessian)
        else:
            pairs = top_eigenpairs(hessian, self._directions, seed=self._seed)
        self._remember(layer, pairs)
        return pairs

    def largest(self, layer: DenseLayer) -> tuple[float, Tensor, float]:
        """λ_max, its eigenvector [out, in], and its residual relative to λ_max."""
        if layer.name not in self._largest:
            hessian = LayerHessian(self._train, layer)
            self._remember(layer, top_eigenpairs(hessian, 1, TOLERANCE, self._seed, values_only=True))
        return self._largest[layer.name]

    def _remember(self, layer: DenseLayer, pairs: EigenPairs) -> None:
        largest = float(pairs.values[0]), pairs.vectors[0].clone(), float(pairs.residuals[0])
        self._largest[layer.name] = largest
