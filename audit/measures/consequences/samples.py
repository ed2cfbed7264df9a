"""Samples of one split, and what a network answers to them: as they are, and with something changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from audit.data.dataset import Split
from audit.maths.blocks import blocks
from audit.measures.contract import Audit
from audit.model.batches import as_fed, filled
from audit.network.loss import Loss, SquaredError
from audit.network.records import Records


@dataclass(frozen=True)
class Answers:
    """Of n samples, in their order."""

    f: Tensor  # [n, C] scores, float64
    loss: Tensor  # [n]
    wrong: Tensor | None  # [n] 0 or 1; None for regression
    answer: Tensor | None  # [n] the class that is answered; None for regression

    @classmethod
    def of(cls, f: Tensor, y: Tensor, loss: Loss) -> Answers:
        """Scores f [n, C] to samples with labels y."""
        if isinstance(loss, SquaredError):
            return cls(f, loss.value(f, y), None, None)
        answer = f.argmax(1) if f.shape[1] > 1 else (f[:, 0] >= 0).long()
        return cls(f, loss.value(f, y), (~loss.correct(f, y)).double(), answer)


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
        return cls(audit.network, records.x[rows], records.y[rows], audit.loss, capture.full_size, capture.fixed_batch)

    def __len__(self) -> int:
        return len(self.x)

    def blocks(self) -> Iterator[slice]:
        """Rows that are run at once."""
        return blocks(len(self.x), 1, self.chunk)

    def fed(self, values: Tensor) -> Tensor:
        """Rows of samples as the network takes them; a fixed batch is filled up."""
        return as_fed(self.network, filled(values, self.fixed_batch or 1)).clone()

    def answers(self, f: list[Tensor]) -> Answers:
        """From the scores of each block of rows, in order."""
        scores = torch.cat([part.detach().double() for part in f])
        return Answers.of(scores, self.y.to(scores.device), self.loss)


def is_table(split: Split, features: tuple[str, ...] | None) -> bool:
    """Whether every number of a sample is a column with a unit of its own."""
    return features is not None and split.x.ndim == 2 and len(features) == split.x.shape[1]
