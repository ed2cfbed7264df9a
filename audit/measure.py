"""The contract that every measure fulfils, and the table it works at.

A measure answers one question. It is started on an `Audit`, sees every train record once while the capture pass runs,
and then finishes; only where its mathematics needs several sweeps (an eigenvector, a second split) does it walk over
`audit.train` or `audit.test` again. It returns plain values: blocks of the report, by layer and for the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from audit.capture import Capture
from audit.data.base import Data
from audit.layers import DenseLayer
from audit.loss import Loss
from audit.model.base import Model
from audit.outcome import Outcome
from audit.record import Record
from audit.settings import Settings


class Records:
    """The records of a split, to be walked over as often as needed.

    They are kept from the first walk on if they fit into `room` bytes, and captured anew on each walk if not. Records
    with a curved tail hold on to their autograd graph and are never kept.
    """

    def __init__(self, capture: Capture, x: Tensor, y: Tensor, room: int, full: bool) -> None:
        self._capture = capture.full if full else capture.forward
        self.chunks = -(-len(x) // (capture.fixed_batch or capture.chunk))  # records that a walk meets
        self.x, self.y, self.room = x, y, room
        self._kept: list[Record] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Record]:
        if self._kept is not None:
            yield from self._kept
            return
        keep: list[Record] | None = []
        left = self.room
        for record in self._capture(self.x, self.y):
            left -= record.bytes()
            keep = None if keep is None or left < 0 or record.has_graph() else [*keep, record]
            yield record
        self._kept = keep


@dataclass(frozen=True)
class Audit:
    """Everything a measure may look at."""

    model: Model
    network: nn.Module  # model.network in the precision of the audit
    layers: tuple[DenseLayer, ...]
    loss: Loss
    data: Data
    capture: Capture  # to run the network again, or a changed copy of it
    train: Records  # full records: forward and all backward passes
    test: Records  # forward records: x and z of each layer, no Jacobian
    train_outcome: Outcome
    test_outcome: Outcome
    settings: Settings

    @property
    def network_is_double(self) -> bool:
        """Whether the audit runs in float64."""
        return next(self.network.parameters()).dtype == torch.float64

    def ready(self, x: Tensor) -> Tensor:
        """Inputs in the network's precision, on its device."""
        weight = next(self.network.parameters())
        return x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype)

    def weight(self, layer: DenseLayer) -> Tensor:
        """W [out, in] of a layer, float64."""
        return layer.weight(self.network).double()


@dataclass(frozen=True)
class Card:
    """What a number is: the definition card that `gen-audit explain` and the report print."""

    id: str  # the number's name in the JSON, such as "flatness.kappa"
    title: str
    meaning: str  # in plain words
    formula: str
    source: str  # paper and equation
    variant: str = ""  # which of the readings the papers leave open
    normalisation: str = ""
    can_tell: str = ""
    cannot_tell: str = ""
    contradictions: str = ""  # what others measured that speaks against it


@dataclass(frozen=True)
class Measurement:
    """What a measure found: one block per layer, one for the network; a block is a frozen dataclass of plain values."""

    layers: Mapping[str, Any] = field(default_factory=dict)
    network: Any = None


class Fold(Protocol):
    """A measure at work on one audit."""

    def see(self, record: Record) -> None:
        """Takes in one chunk of the train split."""

    def finish(self) -> Measurement:
        """Answers, after the last chunk."""


class Measure(Protocol):
    """One question and how it is answered."""

    @property
    def key(self) -> str:
        """The JSON key of its blocks, such as "flatness"."""

    @property
    def question(self) -> str:
        """What it answers, as a reader would ask it."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """What each of its numbers is."""

    def start(self, audit: Audit) -> Fold:
        """Begins an audit."""
