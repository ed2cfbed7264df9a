"""What each sample adds to the largest eigenvalue and to the largest neurons of a layer, once these are known.

λ_max, the largest row and the largest column are quadratic forms of the Hessian in fixed directions of the weights: the
eigenvector V, the matrix with row j of W alone, the matrix with column i of W alone. Each moves the layer's answer by
u = V x, and the sample's share is uᵀ S u.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.record import Record
from audit.records import Records


@dataclass(frozen=True)
class Directions:
    """Directions in the weights [out, in] of one layer."""

    eigenvector: Tensor  # [out, in]
    W: Tensor  # [out, in]
    row: int
    column: int

    def answers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """V x for each of the three directions [n, T, out]; x [n, T, in]."""
        row = torch.zeros(*x.shape[:2], len(self.W), dtype=x.dtype, device=x.device)
        row[:, :, self.row] = x @ self.W[self.row]
        return x @ self.eigenvector.T, row, x[:, :, self.column, None] * self.W[:, self.column]


def quotients(records: Records, layers: Mapping[str, Directions]) -> dict[str, NDArray[np.float64]]:
    """Of every layer [n, 3]: each sample's share of λ_max, of the largest row and of the largest column."""
    found: dict[str, list[Tensor]] = {name: [] for name in layers}
    for record in records:
        for name, directions in layers.items():
            moved = directions.answers(record.layers[name].x.double())
            found[name].append(torch.stack([_form(record, name, u) for u in moved], 1).cpu())
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def _form(record: Record, name: str, u: Tensor) -> Tensor:
    """uᵀ S u of every sample [n]."""
    return (u * record.curvature_times(name, u)).sum((1, 2))
