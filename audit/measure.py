"""The contract that every measure fulfils, and the table it works at.

A measure answers one question. It is started on an `Audit`, sees every train record once while the capture pass runs,
and then finishes; only where its mathematics needs several sweeps (an eigenvector, a second split) does it walk over
`audit.train` or `audit.test` again. It returns plain values: blocks of the report, by layer and for the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from audit.capture import Capture
from audit.card import Card as Card
from audit.curvature.spectra import Spectra
from audit.data.base import Data
from audit.layers import DenseLayer
from audit.loss import Loss
from audit.model.base import Model
from audit.outcome import Outcome
from audit.record import Record
from audit.records import Records as Records
from audit.settings import Settings


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
    spectra: Spectra  # eigenpairs of the layers' Hessians, found once
    settings: Settings

    @property
    def network_is_double(self) -> bool:
        """Whether the audit runs in float64."""
        return next(self.network.parameters()).dtype == torch.float64

    @property
    def epsilon(self) -> float:
        """The rounding unit of the audit's arithmetic."""
        return torch.finfo(next(self.network.parameters()).dtype).eps

    def weight(self, layer: DenseLayer) -> Tensor:
        """W [out, in] of a layer, float64."""
        return layer.weight(self.network).double()


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
