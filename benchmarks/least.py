"""The least that the Hessian's directions add to the floor, bare, when they are found by `eigh` and by iteration.

A basis that is complete takes one `eigh` of its size. An iteration takes at least one product with the Hessian for each
direction that it finds: on all samples, in single precision, and here without the curvature in between. Inputs that are
zero in every sample are left out, as they are in an audit. How many more products are needed, and everything else in
the suite, is not counted.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from audit.curvature.formed_hessian import weights_jvp, weights_vjp
from audit.maths.blocks import DENSE_LIMIT
from audit.maths.lanczos import BLOCK
from benchmarks.cases import Case
from benchmarks.ours import Array, Run


def least_directions(case: Case) -> Run:
    """One product per kept direction of each large dense layer, one `eigh` of each small one."""
    audit, generator = case.audit(), torch.Generator().manual_seed(0)
    small: list[Tensor] = []
    large: list[tuple[Tensor, Tensor]] = []
    for layer in audit.layers:
        used = max(int((record.layers[layer.name].x != 0).any(0).any(0).sum()) for record in audit.train)
        if layer.in_features * layer.out_features <= DENSE_LIMIT:
            size = used * layer.out_features
            root = torch.randn(size, size, generator=generator, dtype=torch.float64)
            small.append(root + root.T)
        else:
            x = torch.randn(len(case.x), layer.tokens, used, generator=generator)
            large.append((x, torch.randn(audit.settings.directions, layer.out_features, used, generator=generator)))
    found = np.array([len(H) for H in small] + [len(V) for _, V in large], np.float64)

    def run() -> Array:
        for H in small:
            torch.linalg.eigh(H)
        for x, directions in large:
            for V in torch.split(directions, BLOCK):
                weights_vjp(x, weights_jvp(x, V), V.shape)
        return found

    return run
