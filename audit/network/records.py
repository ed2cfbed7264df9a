"""The records of a split, as often as a measure wants them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.errors import ModelError
from audit.network.capture import Capture
from audit.network.loss import SquaredError
from audit.network.record import Record


class Records:
    """The records of a split, to be walked over as often as needed.

    They are kept from the first walk on if they fit into `room` bytes, and captured anew on each walk if not. Records
    with a curved tail hold on to their autograd graph and are never kept.
    """

    def __init__(self, capture: Capture, x: Tensor, y: Tensor, room: int, full: bool) -> None:
        self.capture, self._full, self._new = capture, full, True
        self.chunks = -(-len(x) // (capture.full_size if full else capture.forward_size))  # records that a walk meets
        self.x, self.y, self.room = x, y, room
        self._kept: list[Record] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Record]:
        if self._kept is not None:
            for record in self._kept:
                yield record
                record.release()
            return
        keep: list[Record] | None = []
        left = self.room
        for record in self._captured():
            left -= record.bytes()
            keep = None if keep is None or left < 0 or record.has_graph() else [*keep, record]
            yield record
            record.release()
        self._kept = keep

    def _captured(self) -> Iterator[Record]:
        """Only the first walk gathers squares: the measures see each record once, and walk again for other things."""
        squares, self._new = self._new, False
        return self.capture.full(self.x, self.y, squares) if self._full else self.capture.forward(self.x, self.y)


# `Outcome`: what the model did on one split, sample by sample.


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
