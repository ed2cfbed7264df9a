"""The contract that every measure fulfils, and the table it works at.

A measure answers one question. It is started on an `Audit`, sees every train record once while the capture pass runs,
and then finishes; only where its mathematics needs several sweeps (an eigenvector, a second split) does it walk over
`audit.train` or `audit.test` again. It returns plain values: blocks of the report, by layer and for the network.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from audit.curvature.sampled import SampledCurvature
from audit.curvature.spectrum import Spectra
from audit.data.dataset import Data
from audit.maths.resample import Bootstrap
from audit.measures.workload import Demand
from audit.model.base import Model
from audit.network import DenseLayer, PassedBy
from audit.network.capture import Capture
from audit.network.loss import Loss
from audit.network.record import Products, Record
from audit.network.records import Outcome
from audit.network.records import Records as Records
from audit.report.conduct import EXACT, Plan
from audit.report.fields import Card as Card
from audit.settings import Settings

Item = TypeVar("Item")


@dataclass(frozen=True)
class Audit:
    """Everything a measure may look at."""

    model: Model
    task: str  # classification, binary or regression
    network: nn.Module  # model.network in the precision of the audit
    layers: tuple[DenseLayer, ...]
    passed_by: tuple[PassedBy, ...]  # layers with weights that are not measured
    loss: Loss
    data: Data
    capture: Capture  # to run the network again, or a changed copy of it
    train: Records  # full records: forward and all backward passes; forward records where the curvature is sampled
    test: Records  # forward records: x and z of each layer, no Jacobian
    train_outcome: Outcome
    test_outcome: Outcome
    spectra: Spectra  # eigenpairs of the layers' Hessians, found once
    bootstrap: Bootstrap  # the draws behind all intervals
    settings: Settings
    plan: Plan = EXACT  # which measures look at all samples, and which at how many
    sampled: SampledCurvature | None = None  # random signs and columns, found once for all measures that sample

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

    def see(self, record: Record, products: Products) -> None:
        """Takes in one chunk of the train split; `products` of it are formed once for all measures."""

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

    @property
    def demand(self) -> Demand:
        """What it takes, and in which forms it can be done."""

    def start(self, audit: Audit) -> Fold:
        """Begins an audit."""


class Stages(Protocol):
    """Who watches the suite at work: times its stages, and may show them."""

    def stage(self, name: str, words: str) -> AbstractContextManager[None]:
        """A stage of the work, under the name that its time is kept by, and in words."""

    def steps(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        """Passes `items` through, counting them."""


def on_few_samples(audit: Audit, network: nn.Module | None = None, most: int = 64) -> Audit:
    """The audit on at most `most` train samples, evenly picked; with another network where one is given.

    A plan that has the checks sampled may allow fewer.
    """
    network = audit.network if network is None else network
    n, most = len(audit.train), min(most, audit.plan.stage("checks").samples or most)
    rows = np.unique(np.linspace(0, n - 1, min(most, n)).astype(int))
    capture = replace(audit.capture, network=network, chunk=min(audit.capture.chunk, len(rows)))
    records = Records(capture, audit.train.x[rows], audit.train.y[rows], audit.train.room, full=True)
    spectra = Spectra(records, audit.settings.directions, audit.settings.seed)
    return replace(audit, network=network, capture=capture, train=records, spectra=spectra, plan=EXACT, sampled=None)


def feeds_itself(audit: Audit, layer: DenseLayer) -> bool:
    """Whether changing the layer's weights changes what it is given."""
    changed = copy.deepcopy(audit.network)
    weight = layer.weight(changed)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight += noise.to(weight.device, weight.dtype) * (1 + weight.abs().mean())
    few = slice(0, min(4, len(audit.train)))
    captures = (audit.capture, replace(audit.capture, network=changed))
    before, after = (next(capture.forward(audit.train.x[few], audit.train.y[few])) for capture in captures)
    return not torch.equal(before.layers[layer.name].x, after.layers[layer.name].x)
