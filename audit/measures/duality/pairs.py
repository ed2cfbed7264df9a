"""Test samples beside their train partners, run through the network chunk by chunk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from audit.measures.contract import Audit
from audit.network.capture import Capture
from audit.network.memory import budget_bytes
from audit.network.record import Record


@dataclass(frozen=True)
class PairChunk:
    """k test samples (x′ in the paper) and the train partner (x) of each."""

    positions: slice  # which of the pairs these are
    test: Record
    partner: Record
    x: Tensor  # [k, ...]  the partners as the network takes them
    y: Tensor


class Pairs:
    """All pairs of an audit: walked over as often as needed, kept if they fit into a sixteenth of the memory budget.

    Everything about a pair is computed in float64, whatever the precision of the capture pass: the duality is an
    equality, and it is checked as one.
    """

    def __init__(self, audit: Audit, partner: Tensor) -> None:
        self.rows = torch.nonzero(partner >= 0)[:, 0]  # positions in the test split
        self.partner = partner[self.rows]  # positions in the train split
        self.unpaired = len(partner) - len(self.rows)
        self.capture = in_float64(audit.capture)
        self._audit, self.room = audit, budget_bytes(audit.settings.memory) // 16
        self._kept: list[PairChunk] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[PairChunk]:
        if self._kept is not None:
            yield from self._kept
            return
        keep: list[PairChunk] | None = []
        left = self.room
        for chunk in self._run():
            left -= chunk.test.bytes() + chunk.partner.bytes()
            keep = None if keep is None or left < 0 else [*keep, chunk]
            yield chunk
        self._kept = keep

    def _run(self) -> Iterator[PairChunk]:
        size = self.capture.forward_size
        train, test = self._audit.train, self._audit.test
        for start in range(0, len(self), size):
            positions = slice(start, min(start + size, len(self)))
            rows, partner = self.rows[positions], self.partner[positions]
            x, y = train.x[partner], train.y[partner]
            yield PairChunk(positions, self._forward(test.x[rows], test.y[rows]), self._forward(x, y), x, y)

    def _forward(self, x: Tensor, y: Tensor) -> Record:
        """The pass without the layers' answers, which nobody asks a pair for: so that more pairs can be kept."""
        record = next(self.capture.forward(x, y))
        layers = {name: replace(layer, z=layer.z.new_empty(0)) for name, layer in record.layers.items()}
        return replace(record, layers=layers)


def in_float64(capture: Capture) -> Capture:
    """The same capture with its network in float64."""
    if all(weight.dtype == torch.float64 for weight in capture.network.parameters()):
        return capture
    return replace(capture, network=copy.deepcopy(capture.network).double())
