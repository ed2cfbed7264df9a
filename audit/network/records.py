"""The records of a split, as often as a measure wants them; and `Outcome`, the little that is kept of every sample."""

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
        self.capture, self._full = capture, full
        self.chunks = -(-len(x) // (capture.full_size if full else capture.forward_size))  # records of a walk
        self.x, self.y, self.room = x, y, room
        self._kept: list[Record] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Record]:
        if self._kept is not None:
            return iter(self._kept)
        capture = self.capture.full if self._full else self.capture.forward
        return self._keeping(capture(self.x, self.y))

    def measured(self) -> Iterator[Record]:
        """The pass of the measures: records with what the backward passes leave of other parameters on their way.

        That holds on to the forward pass: drop a record before asking for the next one.
        """
        return self._keeping(self.capture.full(self.x, self.y, squares=True))

    def _keeping(self, captured: Iterator[Record]) -> Iterator[Record]:
        """Passes records on, and keeps the lasting part of them if that of all fits into the room."""
        keep: list[Record] | None = []
        left = self.room
        for record in captured:
            left -= record.bytes()
            keep = None if keep is None or left < 0 or record.has_graph() else [*keep, record.to_keep()]
            yield record
            del record  # before the next one is captured
        self._kept = keep


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
