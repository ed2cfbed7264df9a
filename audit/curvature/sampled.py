"""The Gauss–Newton Hessian of each layer where all samples and all scores are too many: sampled, with known errors.

Traces and the other quadratic forms come from random signs, unbiased, with standard errors. Eigenpairs come from the
columns that carry most of the energy: no eigenvalue is overestimated, and none is larger by more than the trace of the
columns left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from audit.maths.gram import ColumnPairs, Columns, column_pairs
from audit.network.capture import Batch, Capture
from audit.network.energy_columns import Energies, choose_columns, energy_columns, forward_energies
from audit.network.layers import DenseLayer
from audit.network.random_signs import Draw, SignSums, sign_sums

BATCH = 32  # samples that share a draw of signs
LEAST_DRAWS = 64  # over all batches: fewer, and the standard error itself is not known
SCORE_DIRECTIONS = 16  # of a sample's curvature in the scores that may become columns


@dataclass(frozen=True)
class SampleSizes:
    """How much is looked at."""

    samples: int  # train samples that traces are taken over
    draws: int  # of signs for each batch of them
    columns: int  # of a layer with one vector per sample
    token_columns: int  # of a layer over tokens
    room: int  # bytes that columns may take at once


class SampledCurvature:
    """All layers of one network over its train samples; each number is found once, when it is first asked for."""

    def __init__(self, capture: Capture, x: Tensor, y: Tensor, sizes: SampleSizes, seed: int) -> None:
        self.capture, self.sizes, self._x, self._y, self._seed = capture, sizes, x, y, seed

    @cached_property
    def sums(self) -> SignSums:
        """Quadratic forms of every layer, and squared gradients of every parameter."""
        capture, n = self.capture, len(self._x)
        batches = -(-self.sizes.samples // BATCH)
        repeats = max(self.sizes.draws, -(-LEAST_DRAWS // batches))
        return sign_sums(capture.network, capture.layers, capture.loss, self._batches(), Draw(n, repeats, self._seed))

    def _batches(self) -> Iterator[Batch]:
        """The first of the samples in a random order: batches then differ by chance alone."""
        generator = torch.Generator().manual_seed(self._seed)
        picked = torch.randperm(len(self._x), generator=generator)[: self.sizes.samples]
        return self.capture.batches(self._x[picked], self._y[picked], self.capture.fixed_batch or BATCH)

    @cached_property
    def energies(self) -> Energies:
        """What a forward pass over all samples tells."""
        return forward_energies(self.capture, self._x, self._y, SCORE_DIRECTIONS)

    @cached_property
    def _columns(self) -> dict[str, Columns]:
        """Of every layer, as many layers at a time as fit into the room."""
        found: dict[str, Columns] = {}
        for group in self._groups():
            count = self.sizes.columns if group[0].tokens == 1 else self.sizes.token_columns
            chosen = choose_columns(self.energies, group, count)
            found |= energy_columns(self.capture, group, self._x, self._y, chosen)
        return found

    def _groups(self) -> Iterator[Sequence[DenseLayer]]:
        """Layers with one vector per sample, then those over tokens; the last layer alone, whose columns are known."""
        *inner, last = self.capture.layers
        yield [last]
        for over_tokens in (False, True):
            group: list[DenseLayer] = []
            for layer in (layer for layer in inner if (layer.tokens > 1) == over_tokens):
                if group and self._bytes([*group, layer]) > self.sizes.room:
                    yield group
                    group = []
                group.append(layer)
            if group:
                yield group

    def _bytes(self, layers: Sequence[DenseLayer]) -> int:
        count = self.sizes.columns if layers[0].tokens == 1 else self.sizes.token_columns
        numbers = sum(layer.tokens * (layer.in_features + layer.out_features) for layer in layers)
        return count * numbers * next(self.capture.network.parameters()).element_size()

    def pairs(self, layer: DenseLayer, most: int) -> ColumnPairs:
        """At most `most` leading eigenpairs of a layer."""
        trace = float(self.sums.layers[layer.name].trace.value)
        return column_pairs(self._columns[layer.name], len(self._x), trace, most, self._seed)
