"""The records of a split, as often as a measure wants them; and `Outcome`, the little that is kept of every sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.errors import ModelError
from audit.network.capture import Capture
from audit.network.loss import CrossEntropy, SquaredError, TokenCrossEntropy
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
        """Passes records on, and keeps the lasting part of them if that of all fits into the room.

        The first one tells whether it will: room that fills up for nothing would be missing elsewhere.
        """
        keep: list[Record] | None = []
        left = self.room
        for record in captured:
            will_fit = record.bytes() * len(self) <= self.room * len(record.f) if not keep else record.bytes() <= left
            keep = None if keep is None or not will_fit or record.has_graph() else [*keep, record.to_keep()]
            left -= record.bytes()
            yield record
            del record  # before the next one is captured
        self._kept = keep


# `Outcome`: what the model did on one split, sample by sample.


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Scores, labels, losses and mistakes of every sample of a split, in its order."""

    scores: Array  # [n, C], or of T positions [n, T·C]
    labels: NDArray[np.generic]  # [n] classes, [n, C] targets, or [n, T] classes, negative where there is none
    loss: Array  # [n]
    wrong: Array | None  # [n] wrong answers, 0 or 1, or up to as many as there are labelled positions; None: regression
    asked: Array | None = None  # [n] labelled positions; None where every sample has one answer
    sample: NDArray[np.int64] | None = None  # [n] of `by_position` alone: whose position it is

    @property
    def error(self) -> float:
        """The share of wrong answers."""
        assert self.wrong is not None
        return float(self.wrong.mean() if self.asked is None else self.wrong.sum() / self.asked.sum())

    @cached_property
    def by_position(self) -> Outcome:
        """Every labelled position as a sample of its own [P]; this outcome itself where samples have one answer."""
        if self.asked is None:
            return self
        sample, position = np.nonzero(np.asarray(self.labels, np.int64) >= 0)
        scores = self.scores.reshape(*self.labels.shape, -1)[sample, position]
        f, y = torch.from_numpy(scores), torch.from_numpy(self.labels[sample, position])
        loss, right = CrossEntropy().value(f, y).numpy(), CrossEntropy().correct(f, y).numpy()
        return Outcome(scores, y.numpy(), loss, 1.0 - right, sample=sample)

    @property
    def targets(self) -> Array:
        """Labels as numbers [n, C], for regression."""
        return np.asarray(self.labels, dtype=np.float64)

    @classmethod
    def of(cls, records: Iterable[Record], split: str = "train") -> Outcome:
        """Gathers the small per-sample values out of a stream of records."""
        kept = [(record.f, record.y, record.loss, _wrong(record), _asked(record)) for record in records]
        f, y, loss, wrong, asked = (torch.cat(column).cpu().numpy() for column in zip(*kept, strict=True))
        bad = np.flatnonzero(~(np.isfinite(f).all(1) & np.isfinite(loss)))
        if bad.size:
            raise ModelError(
                f"The model's scores for {len(bad)} samples of the {split} split, the first at position {bad[0]}, are "
                "not finite or lead to no finite loss; check these samples and the preprocessing."
            )
        return cls(f, y, loss, wrong if wrong.size else None, asked if asked.size else None)


def _wrong(record: Record) -> torch.Tensor:
    """Wrong answers of each sample [n]; nothing for regression."""
    if isinstance(record.loss_function, SquaredError):
        return record.loss.new_empty(0)
    wrong = ~record.loss_function.correct(record.f, record.y)
    return (wrong & (record.y >= 0)).sum(1).double() if wrong.dim() == 2 else wrong.double()


def _asked(record: Record) -> torch.Tensor:
    """Labelled positions of each sample [n]; nothing where every sample has one answer."""
    if isinstance(record.loss_function, TokenCrossEntropy):
        return (record.y >= 0).sum(1).double()
    return record.loss.new_empty(0)
