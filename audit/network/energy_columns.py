"""The columns of each layer's Gauss–Newton Hessian that carry most of its trace, from few backward passes.

One column Σ_t q_t x_tᵀ belongs to a sample i and a direction r_ij of its loss's curvature in the scores: q = Jᵀ r_ij.
Before any backward pass its energy ‖q‖² ‖x‖² is foretold by ‖r_ij‖² ‖x_i‖², which is nearly zero for samples that are
fitted. Backward passes are run for the columns of most energy alone: every pass takes one direction of each sample of a
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.maths.gram import Columns
from audit.network.capture import Capture
from audit.network.layers import DenseLayer
from audit.network.score_curvature import ScoreCurvature, score_curvature


@dataclass(frozen=True)
class Energies:
    """What a forward pass over n samples tells of the energy of every column."""

    curvature: ScoreCurvature
    squared: dict[str, Tensor]  # by layer name: Σ_t ‖x_t‖² of what it is given [n]


@dataclass(frozen=True)
class Chosen:
    """k columns: which samples, and what their scores are pulled by."""

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
    first = counts.cumsum(0) - counts
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
