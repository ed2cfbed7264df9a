"""What no way to the Hessian's directions is without, bare: the least that they add to the floor.

A basis that is complete takes one `eigh` of its size. Directions of a larger layer take at least one product with the
Hessian each, or nobody knows whether they are any: on all samples, in single precision, and here without the curvature
in between. How many more an iteration needs to find them, and everything else in the suite, is not counted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.curvature.hessian import DENSE_LIMIT
from audit.curvature.single import pulled, pushed
from benchmarks.cases import Case
from benchmarks.ours import Array, Run

AT_ONCE = 2  # directions, as in the iteration


def least_directions(case: Case) -> Run:
    """One product per kept direction of each large dense layer, one `eigh` of each small one."""
    audit, generator = case.audit(), torch.Generator().manual_seed(0)
    kept = audit.settings.directions
    small: list[Tensor] = []
    large: list[tuple[Tensor, Tensor]] = []
    for layer in audit.layers:
        size = layer.in_features * layer.out_features
        if size <= DENSE_LIMIT:
            root = torch.randn(size, size, generator=generator, dtype=torch.float64)
            small.append(root @ root.T)
        else:
            x = torch.randn(len(case.x), layer.tokens, layer.in_features, generator=generator)
            large.append((x, torch.randn(kept, layer.out_features, layer.in_features, generator=generator)))

    def run() -> Array:
        for H in small:
            torch.linalg.eigh(H)
        for x, directions in large:
            for V in torch.split(directions, AT_ONCE):
                pulled(x, pushed(x, V), V.shape)
        return directions_counted

    directions_counted = torch.tensor([float(len(H)) for H in small] + [float(len(V)) for _, V in large]).numpy()
    return run
