"""`Outcome`: what the model did on one split, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from audit.errors import ModelError
from audit.network.loss import SquaredError
from audit.network.record import Record

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Scores, labels, losses and mistakes of every sample of a split, in its order."""

    scores: Array  # [n, C]
    labels: NDArray[np.generic]  # [n] classes, or [n, C] targets
    loss: Array  # [n]
    wrong: Array | None  # [n] 0 or 1; None for regression

    @property
    def targets(self) -> Array:
        """Labels as numbers [n, C], for regression."""
        return np.asarray(self.labels, dtype=np.float64)

    @classmethod
    def of(cls, records: Iterable[Record], split: str = "train") -> Outcome:
        """Gathers the small per-sample values out of a stream of records."""
        kept = [(record.f, record.y, record.loss, _wrong(record)) for record in records]
        f, y, loss, wrong = (torch.cat(column).cpu().numpy() for column in zip(*kept, strict=True))
        bad = np.flatnonzero(~(np.isfinite(f).all(1) & np.isfinite(loss)))
        if bad.size:
            raise ModelError(
                f"The model's scores for {len(bad)} samples of the {split} split, the first at position {bad[0]}, are "
                "not finite or lead to no finite loss; check these samples and the preprocessing."
            )
        return cls(f, y, loss, wrong if wrong.size else None)


def _wrong(record: Record) -> torch.Tensor:
    """0 or 1 per sample [n]; nothing for regression."""
    if isinstance(record.loss_function, SquaredError):
        return record.loss.new_empty(0)
    return (~record.loss_function.correct(record.f, record.y)).double()
