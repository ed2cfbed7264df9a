"""Are the invariant numbers invariant? The network is really rescaled, and measured again.

Where the function between two dense layers is positively homogeneous, such as ReLU, multiplying what enters a hidden
neuron by a > 0 and dividing what leaves it by a changes no answer of the network. κ and κ_τ must not move when all
neurons of a layer share one a; ρ must not move even when each has its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from audit.curvature.sampled import SampledCurvature, SampleSizes
from audit.measures.contract import Audit, on_few_samples
from audit.measures.flatness.block import LayerFlatness
from audit.measures.flatness.measure import Flatness
from audit.measures.flatness.terms import sampled_layer
from audit.network.layers import DenseLayer, dense_only
from audit.network.record import Products, Record
from audit.report.blocks import Check, skipped, worst

TOLERANCE = 1e-6
SAME_FUNCTION = {torch.float64: 1e-9, torch.float32: 1e-4}  # far above rounding, far below any curved function
LAYER_WISE = ("kappa", "kappa_tau", "rho", "rho_sigma", "rho_columns", "rho_columns_sigma")
NEURON_WISE = ("rho", "rho_sigma", "rho_columns", "rho_columns_sigma")
COLUMNS, TOKEN_COLUMNS = 64, 16  # behind λ_max where the checks are sampled
ONE_LAYER = "The network has a single dense layer: there is nothing to rescale it against."
NO_PAIR = (
    "No two layers that follow each other could be rescaled without changing what the network answers: for instance, "
    "what lies between them does not grow in proportion to what it is given, as ReLU does, another path leads round "
    "one of them, or they are convolutions, which this check leaves alone."
)


def check_rescaling(audit: Audit) -> list[Check]:
    """One check with a common factor, one with a factor for each neuron."""
    few = on_few_samples(audit)
    tolerance = TOLERANCE if few.network_is_double else 1e-2
    before: dict[str, LayerFlatness] | None = None
    checks = []
    for id, title, names, spread in (
        ("rescaling-layers", "Rescaling whole layers moves no invariant number", LAYER_WISE, False),
        ("rescaling-neurons", "Rescaling single neurons does not move ρ", NEURON_WISE, True),
    ):
        network = _rescaled_somewhere(few, spread)
        if network is None:
            why = NO_PAIR if len(dense_only(few.layers)) > 1 else ONE_LAYER
            checks.append(skipped(id, title, why, ["flatness"]))
            continue
        flatness = _flatness if audit.plan.is_exact("checks") else _sampled_flatness
        before = before or flatness(few)
        moved = _largest_change(before, flatness(on_few_samples(audit, network)), names)
        words = f"Largest relative change of {', '.join(names)} over {len(few.train)} samples after a random rescaling."
        checks.append(worst(id, title, moved, tolerance, words, ["flatness"]))
    return checks


def _rescaled_somewhere(few: Audit, spread: bool) -> nn.Module | None:
    """A copy, rescaled between the first two neighbouring layers that allow it; None where no two do."""
    generator = torch.Generator().manual_seed(few.settings.seed)
    for first, second in pairwise(dense_only(few.layers)):
        if first.out_features != second.in_features or first.calls + second.calls > 2:
            continue
        draws = torch.rand(first.out_features if spread else 1, generator=generator, dtype=torch.float64)
        factors = (0.5 * 4**draws).expand(first.out_features)  # from ½ to 2
        network = _rescaled(few.network, first, second, factors)
        if _same_function(few, network) and _passes_factors_on(few, network, first, second, factors):
            return network
    return None


def _same_function(few: Audit, network: nn.Module) -> bool:
    f, g = (torch.cat([record.f for record in _forward(few, part)]) for part in (few.network, network))
    return _agree(few, f, g)


def _passes_factors_on(few: Audit, network: nn.Module, first: DenseLayer, second: DenseLayer, factors: Tensor) -> bool:
    """Whether what reaches the second layer grows with the factors, also where the first answers with numbers up to 1.

    Close to 0 every smooth function looks linear, and so homogeneous: its curvature does not.
    """
    largest = max(float(record.layers[first.name].z.abs().max()) for record in _forward(few, few.network))
    if not largest > 0:
        return False
    plain, rescaled = (
        torch.cat([record.layers[second.name].x for record in _forward(few, _scaled_layer(part, first, 1 / largest))])
        for part in (few.network, network)
    )
    return _agree(few, plain, rescaled / factors.to(rescaled))


def _agree(few: Audit, a: Tensor, b: Tensor) -> bool:
    """Whether two results of the network's arithmetic differ by no more than its rounding."""
    allowed = SAME_FUNCTION[next(few.network.parameters()).dtype]
    return float((a - b).abs().max()) <= allowed * float(a.abs().max())


def _forward(few: Audit, network: nn.Module) -> Iterator[Record]:
    return replace(few.capture, network=network).forward(few.train.x, few.train.y)


@torch.no_grad()
def _scaled_layer(network: nn.Module, layer: DenseLayer, factor: float) -> nn.Module:
    """A copy whose layer answers with `factor` times its answers."""
    network = copy.deepcopy(network)
    layer.weight(network).mul_(factor)
    bias = network.get_submodule(layer.module).bias
    if isinstance(bias, Tensor):
        bias.mul_(factor)
    return network


@torch.no_grad()
def _rescaled(network: nn.Module, first: DenseLayer, second: DenseLayer, factors: Tensor) -> nn.Module:
    network = copy.deepcopy(network)
    bias = network.get_submodule(first.module).bias
    a = factors.to(first.weight(network))
    first.weight(network).mul_(a[:, None])
    if isinstance(bias, Tensor):
        bias.mul_(a)
    second.weight(network).div_(a[None, :])
    return network


def _flatness(few: Audit) -> dict[str, LayerFlatness]:
    fold = Flatness().start(few)
    for record in few.train:
        fold.see(record, Products(record))
    return dict(fold.finish().layers)


def _sampled_flatness(few: Audit) -> dict[str, LayerFlatness]:
    """By random signs and columns: the same signs before and after, so that chance moves nothing."""
    sizes = SampleSizes(len(few.train), COLUMNS, TOKEN_COLUMNS, directions=1, room=few.train.room, draws=1)
    sampled = SampledCurvature(few.capture, few.train.x, few.train.y, sizes, few.settings.seed)
    return {layer.name: sampled_layer(sampled, layer) for layer in dense_only(few.layers)}


def _largest_change(before: dict[str, LayerFlatness], after: dict[str, LayerFlatness], names: tuple[str, ...]) -> float:
    pairs = [(getattr(before[layer], name), getattr(after[layer], name)) for layer in before for name in names]
    changes = [abs(new - old) / max(abs(old), 1e-300) for old, new in pairs if old is not None and new is not None]
    return max(changes, default=0.0)
