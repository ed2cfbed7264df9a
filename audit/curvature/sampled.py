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

from audit.maths.decompositions import eigh
from audit.maths.gram import ColumnPairs, Columns, column_pairs
from audit.network import DenseLayer, dense_only
from audit.network.capture import Batch, Capture
from audit.network.loss import BinaryCrossEntropy, CrossEntropy, Loss, TokenCrossEntropy
from audit.network.random_signs import Draw, SignSums, gradient_squares, sign_sums
from audit.network.residual_traces import ResidualTraces, is_multilinear, residual_traces

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

    @property
    def layers(self) -> list[DenseLayer]:
        """Those that have a Hessian of their own: weights that are also another layer's have none."""
        return [layer for layer in self.capture.layers if not layer.tied_with]

    @cached_property
    def sums(self) -> SignSums:
        """Quadratic forms of these layers, and squared gradients of every parameter."""
        capture, few = self.capture, self.sizes.samples
        size = min(BATCH, max(1, few // min(BATCHES, self.sizes.draws)))
        repeats = max(min(LEAST_REPEATS, self.sizes.draws), -(-self.sizes.draws // -(-few // size)))
        draw = Draw(len(self._x), repeats, self._seed)
        return sign_sums(capture.network, self.layers, capture.loss, self._batches(few, size), draw)

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
        if is_multilinear(capture.network, batches[0].x):
            return ResidualTraces({}, frozenset())
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
        """Of these layers, as many at a time as fit into the room."""
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
        *inner, last = self.layers
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


# The curvature Λ of the loss in the scores, sample by sample, as few directions with their sizes.
#
# Λ = Lᵀ L. Its own eigen-directions carry its trace in the fewest columns. With many classes a sample's probability
# lies in few of them: then the rows of L that belong to these are taken, and the eigen-directions of what these span.
# What is left out is positive semidefinite.


MOST_CLASSES = 32  # of a sample, whose rows of L are looked at


@dataclass(frozen=True)
class ScoreCurvature:
    """Leading directions of each sample's Λ."""

    sizes: Tensor  # [n, r]  eigenvalues, descending
    roots: Tensor  # [n, r, C]  √size times the direction: Σ_j root_j root_jᵀ is Λ, or less
    trace: Tensor  # [n]  tr Λ, all of it


def score_curvature(loss: Loss, f: Tensor, y: Tensor, most: int) -> ScoreCurvature:
    """At most `most` directions of each sample; f [n, C], float64, with labels y.

    >>> f, y = torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    >>> found = score_curvature(CrossEntropy(), f, y, 2)
    >>> round(float(found.sizes[0, 0]), 6), round(float(found.trace[0]), 6)
    (0.5, 0.5)
    """
    n, C = f.shape
    if isinstance(loss, CrossEntropy):
        return _of_classes(f, min(most, C - 1))
    if isinstance(loss, TokenCrossEntropy):
        return _of_positions(loss, f, y, most)
    if isinstance(loss, BinaryCrossEntropy):
        size = torch.sigmoid(f) * torch.sigmoid(-f)
        return ScoreCurvature(size, size.sqrt()[:, :, None], size[:, 0])
    units = torch.eye(C, dtype=f.dtype, device=f.device)[:most].expand(n, -1, -1)
    return ScoreCurvature(f.new_ones(n, len(units[0])), units.clone(), f.new_full((n,), float(C)))


def _of_positions(loss: TokenCrossEntropy, f: Tensor, y: Tensor, most: int) -> ScoreCurvature:
    """The largest of all positions' directions: Λ has a block w_t Λ_t for each position and nothing between them."""
    n, C, w = len(f), loss.classes, loss.weights(y)  # [n, T]
    found = _of_classes(f.reshape(-1, C), min(most, C - 1))
    sizes = w[:, :, None] * found.sizes.reshape(*w.shape, -1)  # [n, T, r]
    kept = torch.topk(sizes.flatten(1), min(most, sizes[0].numel()), dim=1)
    position = kept.indices // sizes.shape[2]
    root = found.roots.reshape(n, -1, C).gather(1, kept.indices[:, :, None].expand(-1, -1, C))
    roots = f.new_zeros(*position.shape, w.shape[1], C)
    where = position[:, :, None, None].expand(-1, -1, 1, C)
    roots.scatter_(2, where, (w.gather(1, position).sqrt()[:, :, None] * root)[:, :, None])
    return ScoreCurvature(kept.values, roots.flatten(2), (w * found.trace.reshape(w.shape)).sum(1))


def _of_classes(f: Tensor, most: int) -> ScoreCurvature:
    p, top = f.softmax(1), f.argmax(1, keepdim=True)
    others = p.scatter(1, top, 0.0).sum(1, keepdim=True)  # 1 − p_top, without cancellation
    trace = (p * (1 - p).scatter(1, top, others)).sum(1)
    kept = torch.topk(p, min(MOST_CLASSES, f.shape[1]), dim=1).indices  # [n, r]
    L = -p[:, None, :].expand(-1, kept.shape[1], -1).clone()
    own = (1 - p).scatter(1, top, others).gather(1, kept)
    L.scatter_(2, kept[:, :, None], own[:, :, None])
    L *= p.gather(1, kept).sqrt()[:, :, None]  # rows √p_c (e_c − p) of the root  [n, r, C]
    values, vectors = (part.flip(-1) for part in eigh(L @ L.mT))
    r = min(most, values.shape[1])
    roots = vectors[:, :, :r].mT @ L  # [n, r, C], orthogonal, of squared length `values`
    return ScoreCurvature(values[:, :r].clamp(min=0), roots, trace)


# The columns of each layer's Gauss–Newton Hessian that carry most of its trace, from few backward passes.
#
# One column Σ_t q_t x_tᵀ belongs to a sample i and a direction r_ij of its loss's curvature in the scores: q = Jᵀ r_ij.
# Before any backward pass its energy ‖q‖² ‖x‖² is foretold by ‖r_ij‖² ‖x_i‖², which is nearly zero for samples that are
# fitted. Backward passes are run for the columns of most energy alone: every pass takes one direction of each sample of
# a batch.


@dataclass(frozen=True)
class Energies:
    """What a forward pass over n samples tells of the energy of every column."""

    curvature: ScoreCurvature
    squared: dict[str, Tensor]  # by layer name: Σ_t ‖x_t‖² of what it is given [n]


@dataclass(frozen=True)
class Chosen:
    """k columns: which samples, and the cotangents of their scores."""

    samples: Tensor  # [k]  ascending
    roots: Tensor  # [k, C]


def forward_energies(capture: Capture, x: Tensor, y: Tensor, directions: int) -> Energies:
    """One forward pass over all samples."""
    found, squared = [], {layer.name: [] for layer in capture.layers}  # type: ignore[var-annotated]
    for record in capture.forward(x, y):
        found.append(score_curvature(capture.loss, record.f, record.y, directions))
        for name, layer in record.layers.items():
            squared[name].append(layer.x.double().square().sum((1, 2)))
    parts = (torch.cat([getattr(each, name) for each in found]) for name in ("sizes", "roots", "trace"))
    return Energies(ScoreCurvature(*parts), {name: torch.cat(each) for name, each in squared.items()})


def choose_columns(energies: Energies, layers: Sequence[DenseLayer], count: int) -> Chosen:
    """The `count` columns with the most foretold energy, over the given layers together."""
    sizes = energies.curvature.sizes
    relative = [
        energies.squared[layer.name] / energies.squared[layer.name].mean().clamp(min=1e-300) for layer in layers
    ]
    foretold = sizes * torch.stack(relative).mean(0)[:, None]
    kept = torch.topk(foretold.flatten(), min(count, foretold.numel())).indices.sort().values
    samples = kept // sizes.shape[1]
    return Chosen(samples, energies.curvature.roots.flatten(0, 1)[kept])


def energy_columns(
    capture: Capture, layers: Sequence[DenseLayer], x: Tensor, y: Tensor, chosen: Chosen
) -> dict[str, Columns]:
    """The chosen columns of every layer, in the network's own precision: as many backward passes as directions."""
    q: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
    given: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
    samples, counts = torch.unique_consecutive(chosen.samples, return_counts=True)
    alike = counts.argsort(descending=True, stable=True)  # a batch has as many passes as its sample with most columns
    samples, counts, first = samples[alike], counts[alike], (counts.cumsum(0) - counts)[alike]
    for batch in capture.batches(x[samples], y[samples]):
        with torch.enable_grad():
            passed = capture.run(batch.x)
        zs = {layer.name: [z for _, z in passed.calls[layer.name]] for layer in layers}
        here, n = slice(batch.start, batch.start + batch.rows), len(batch.x)
        for turn in range(int(counts[here].max())):
            mine = torch.nonzero(counts[here] > turn)[:, 0]
            cotangent = torch.zeros_like(passed.f)
            cotangent[mine] = chosen.roots[first[here][mine] + turn].to(passed.f)
            found = torch.autograd.grad(
                passed.f,
                [z for each in zs.values() for z in each],
                cotangent,
                retain_graph=True,
                materialize_grads=True,
            )
            signals = iter(found)
            for layer in layers:
                parts = [layer.arrange(next(signals), n) for _ in zs[layer.name]]
                q[layer.name].append(torch.cat(parts, 1)[mine])
                inputs = [layer.arrange_input(part, n) for part, _ in passed.calls[layer.name]]
                given[layer.name].append(torch.cat(inputs, 1)[mine])
    return {name: Columns(torch.cat(q[name]), torch.cat(given[name])) for name in q}
