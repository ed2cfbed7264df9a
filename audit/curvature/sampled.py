"""The Gauss–Newton Hessian of each layer where all samples and all scores are too many: sampled, with known errors.

Traces and the other quadratic forms come from random signs, unbiased, with standard errors. Eigenpairs come from the
columns that carry most of the energy: no eigenvalue is overestimated, and none is larger by more than the trace of the
columns left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from audit.maths.gram import ColumnPairs, Columns, column_pairs
from audit.network.capture import Batch, Capture
from audit.network.energy_columns import Energies, choose_columns, energy_columns, forward_energies
from audit.network.layers import DenseLayer, dense_only
from audit.network.random_signs import Draw, SignSums, gradient_squares, sign_sums
from audit.network.residual_traces import ResidualTraces, residual_traces

BATCH = 64  # samples that share a draw of signs, at most …
BATCHES = 32  # … and so many batches, at least: a draw costs less over few samples and tells as much
LEAST_DRAWS, LEAST_REPEATS = (
    64,
    2,
)  # of random signs over all batches, and of each: fewer, and the standard error itself is not known
RESIDUAL_SAMPLES, RESIDUAL_BATCH, RESIDUAL_DRAWS = 64, 8, 4  # behind what Gauss–Newton leaves out
SCORE_DIRECTIONS = 16  # of a sample's curvature in the scores that may become columns


@dataclass(frozen=True)
class SampleSizes:
    """How much is looked at."""

    samples: int  # train samples that traces are taken over
    columns: int  # of a layer with one vector per sample
    token_columns: int  # of a layer over tokens
    directions: int  # eigenpairs of a layer that everything runs through; of others, the largest one
    room: int  # bytes that columns may take at once
    draws: int = LEAST_DRAWS  # of the random signs


class SampledCurvature:
    """All layers of one network over its train samples; each number is found once, when it is first asked for."""

    def __init__(self, capture: Capture, x: Tensor, y: Tensor, sizes: SampleSizes, seed: int) -> None:
        self.capture, self.sizes, self._x, self._y, self._seed = capture, sizes, x, y, seed

    @cached_property
    def sums(self) -> SignSums:
        """Quadratic forms of every layer, and squared gradients of every parameter."""
        capture, few = self.capture, self.sizes.samples
        size = min(BATCH, max(1, few // min(BATCHES, self.sizes.draws)))
        repeats = max(min(LEAST_REPEATS, self.sizes.draws), -(-self.sizes.draws // -(-few // size)))
        draw = Draw(len(self._x), repeats, self._seed)
        return sign_sums(capture.network, capture.layers, capture.loss, self._batches(few, size), draw)

    def _batches(self, most: int, size: int = BATCH) -> Iterator[Batch]:
        """The first of the samples in a random order: batches then differ by chance alone."""
        generator = torch.Generator().manual_seed(self._seed)
        picked = torch.randperm(len(self._x), generator=generator)[:most]
        return self.capture.batches(self._x[picked], self._y[picked], self.capture.fixed_batch or size)

    @cached_property
    def gradients(self) -> tuple[float, float]:
        """‖mean g_i‖² and mean ‖g_i‖² over the samples, g_i the gradient of sample i's loss in all dense weights."""
        capture, dense = self.capture, dense_only(tuple(self.capture.layers))
        return gradient_squares(capture.network, dense, capture.loss, self._batches(self.sizes.samples), self._seed)

    @cached_property
    def residuals(self) -> ResidualTraces:
        """What the Gauss–Newton part leaves out of every layer's trace, on a few samples."""
        capture, batches = self.capture, list(self._batches(RESIDUAL_SAMPLES, RESIDUAL_BATCH))
        draw = Draw(len(self._x), RESIDUAL_DRAWS, self._seed)
        return residual_traces(capture.network, capture.layers, capture.loss, batches, draw)

    @cached_property
    def energies(self) -> Energies:
        """What a forward pass over all samples tells."""
        return forward_energies(self.capture, self._x, self._y, SCORE_DIRECTIONS)

    def pairs(self, layer: DenseLayer) -> ColumnPairs:
        """The leading eigenpairs of a layer; of one that something leads round, the largest, without its columns."""
        return self._pairs[layer.name]

    @cached_property
    def _pairs(self) -> dict[str, ColumnPairs]:
        """Of every layer, as many layers at a time as fit into the room."""
        found: dict[str, ColumnPairs] = {}
        for group in self._groups():
            count = self.sizes.columns if group[0].tokens == 1 else self.sizes.token_columns
            chosen = choose_columns(self.energies, group, count)
            columns = energy_columns(self.capture, group, self._x, self._y, chosen)
            for layer in group:
                found[layer.name] = self._of(layer, columns.pop(layer.name))
        return found

    def _of(self, layer: DenseLayer, columns: Columns) -> ColumnPairs:
        trace = float(self.sums.layers[layer.name].trace.value)
        most = self.sizes.directions if layer.cut_point else 1
        pairs = column_pairs(columns, len(self._x), trace, most, self._seed)
        return pairs if layer.cut_point else replace(pairs, columns=columns.none())

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
