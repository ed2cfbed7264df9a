"""Samples of one split, and what a network answers to them: as they are, and with something changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from audit.data.dataset import Split
from audit.maths.blocks import blocks
from audit.measures.contract import Audit
from audit.model.batches import as_fed, filled
from audit.network.hooks import scores
from audit.network.loss import Loss, SquaredError
from audit.network.records import Records


@dataclass(frozen=True)
class Answers:
    """Of n samples, in their order; not their scores, which are too many to keep for every change."""

    loss: Tensor  # [n]; not finite where a score is not
    moved: Tensor  # [n] ‖f′ − f‖, how far the scores are from those without a change
    wrong: Tensor | None  # [n] 0 or 1; None for regression
    answer: Tensor | None  # [n] the class that is answered; None for regression

    @classmethod
    def of(cls, f: Tensor, before: Tensor, y: Tensor, loss: Loss) -> Answers:
        """Scores f [n, C], and those `before` a change, to samples with labels y."""
        moved = (f - before).norm(dim=1)
        value = torch.where(moved.isfinite(), loss.value(f, y), torch.inf)
        if isinstance(loss, SquaredError):
            return cls(value, moved, None, None)
        answer = f.argmax(1) if f.shape[1] > 1 else (f[:, 0] >= 0).long()
        return cls(value, moved, (~loss.correct(f, y)).double(), answer)

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """One block of samples after the other."""
        loss, moved = (torch.cat(values) for values in zip(*((part.loss, part.moved) for part in parts), strict=True))
        wrong = [part.wrong for part in parts if part.wrong is not None]
        answer = [part.answer for part in parts if part.answer is not None]
        return cls(loss, moved, torch.cat(wrong) if wrong else None, torch.cat(answer) if answer else None)


@dataclass(frozen=True)
class Samples:
    """Some samples of a split, to be run as often as needed, a few at a time."""

    network: nn.Module
    x: Tensor  # [n, …] as stored
    y: Tensor
    loss: Loss
    chunk: int
    fixed_batch: int | None

    @classmethod
    def of(cls, audit: Audit, records: Records, most: int) -> Samples:
        """At most `most` of a split, drawn by the seed; all of them in their order where they are no more."""
        n = len(records)
        rng = np.random.default_rng([audit.settings.seed, n])
        rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
        capture = audit.capture
        chunk = capture.forward_size  # no backward pass follows but one, to the input
        return cls(audit.network, records.x[rows], records.y[rows], audit.loss, chunk, capture.fixed_batch)

    def __len__(self) -> int:
        return len(self.x)

    def blocks(self) -> Iterator[slice]:
        """Rows that are run at once."""
        return blocks(len(self.x), 1, self.chunk)

    def fed(self, values: Tensor) -> Tensor:
        """Rows of samples as the network takes them; a fixed batch is filled up."""
        return as_fed(self.network, filled(values, self.fixed_batch or 1)).clone()

    def answers(self, rows: slice, f: Tensor) -> Answers:
        """From the scores of a block of rows after a change."""
        y = self.y[rows].to(f.device)
        return Answers.of(f.detach().double(), self.unchanged[rows], y, self.loss)

    def unfilled(self) -> Answers:
        """Room for answers, taken before any is there: small tensors kept between large ones would split the heap."""
        loss, moved, wrong = torch.empty(3, len(self), dtype=torch.float64, device=self.unchanged.device)
        if isinstance(self.loss, SquaredError):
            return Answers(loss, moved, None, None)
        one = self.answers(slice(0, 1), self.unchanged[:1])
        assert one.wrong is not None and one.answer is not None
        shape = (len(self), *one.wrong.shape[1:])
        return Answers(loss, moved, wrong.new_empty(shape), one.answer.new_empty((len(self), *one.answer.shape[1:])))

    def fill(self, room: Answers, rows: slice, f: Tensor) -> None:
        """Puts the answers of a block of rows where there is room for them."""
        part = self.answers(rows, f)
        room.loss[rows], room.moved[rows] = part.loss, part.moved
        if room.wrong is not None and part.wrong is not None:
            room.wrong[rows] = part.wrong
        if room.answer is not None and part.answer is not None:
            room.answer[rows] = part.answer

    @property
    def before(self) -> Answers:
        """Of the network as it is."""
        return self.answers(slice(0, len(self)), self.unchanged)

    @cached_property
    def unchanged(self) -> Tensor:
        """Scores [n, C] of the network as it is, float64."""
        with torch.no_grad():
            parts = [scores(self.network, self.fed(self.x[rows]))[: rows.stop - rows.start] for rows in self.blocks()]
        return torch.cat(parts).double()


def is_table(split: Split, features: tuple[str, ...] | None) -> bool:
    """Whether every number of a sample is a column with a unit of its own."""
    return features is not None and split.x.ndim == 2 and len(features) == split.x.shape[1]
