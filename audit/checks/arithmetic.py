"""Is the arithmetic right? The Hessian against plain double backward, and a network really rescaled.

The Hessian is probed by its product with a random direction.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.curvature import LayerHessian
from audit.curvature.sampled import SampledCurvature, SampleSizes
from audit.measures.contract import Audit, on_few_samples
from audit.measures.flatness.block import LayerFlatness
from audit.measures.flatness.measure import Flatness
from audit.measures.flatness.terms import sampled_layer
from audit.network import DenseLayer, dense_only
from audit.network.loss import SquaredError
from audit.network.record import Products, Record
from audit.report.blocks import Check, skipped, worst
from audit.settings.limits import let_go

ID, TITLE = "hessian-probe", "The curvature of the loss agrees with plain double differentiation"
TOLERANCE = 1e-8
ROUNDING = 16  # in units of the arithmetic's ε: what a few sums and differences lose
FEW = 32  # samples that the Hessian is probed on
SOME = 3  # layers of a network that is too large for all to be probed
PROBED_BYTES = 64  # of each weight of a layer that is probed: several matrices as large, in double precision
AFFECTS = ["flatness", "duality"]


@dataclass(frozen=True)
class Probe:
    """vᵀ H v of one layer in two ways, and how far rounding alone may move them apart."""

    ours: float
    theirs: float
    rounding: float

    @property
    def error(self) -> float:
        """The difference in units of what double differentiation gives, as it is."""
        return self._difference / max(abs(self.theirs), 1e-300)

    def tells(self, tolerance: float) -> bool:
        """Not where rounding may pass for an error above `tolerance`, or hide one, and accounts for what is seen."""
        return self.rounding <= tolerance * abs(self.theirs) or not self._difference <= self.rounding

    @property
    def _difference(self) -> float:
        return abs(self.ours - self.theirs)


def check_curvature(audit: Audit) -> Check:
    """vᵀ H v of every layer, from (x, J, S) and by differentiating the loss twice with respect to W.

    Where the plan has the checks sampled, of the first layer, the last and one between.
    """
    few = on_few_samples(audit, most=FEW)
    layers = [layer for layer in few.layers if layer.calls == 1 and not layer.tied_with]
    if not layers:
        return _skipped("Every dense layer shares its weights, so none has a Hessian of its own.")
    over = f"{len(few.train)} samples"
    if not audit.plan.is_exact("checks") and len(layers) > SOME:
        over = f"{over} and {SOME} of {len(layers)} layers"
        layers = [layers[place] for place in np.unique(np.linspace(0, len(layers) - 1, SOME).astype(int))]
    room = audit.plan.memory or math.inf
    fit = [layer for layer in layers if _bytes(layer) <= room]
    if len(fit) < len(layers):
        too_large = ", ".join(layer.name for layer in layers if layer not in fit)
        over = f"{over}, but not of {too_large}, which double differentiation takes more than --memory for"
    if not fit:
        return _skipped("Every dense layer is too large to be differentiated twice within --memory.")
    try:
        probes = {layer.name: _probe(few, layer) for layer in fit}
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        return _skipped(f"The network cannot be differentiated twice ({reason}); only Gauss–Newton is to be had.")
    return _judged(probes, over, TOLERANCE if few.network_is_double else 1e-2)


def _bytes(layer: DenseLayer) -> int:
    """What differentiating twice in its weights takes, and H v in double precision beside it."""
    return PROBED_BYTES * layer.in_features * layer.out_features


def _judged(probes: dict[str, Probe], over: str, tolerance: float) -> Check:
    """The worst of the layers that can be judged; the others are named, and never pass."""
    errors = {name: probe.error for name, probe in probes.items() if probe.tells(tolerance)}
    if not errors:
        return _skipped("Double differentiation loses too many digits here to tell: vᵀHv is too close to its rounding.")
    name = max(errors, key=lambda name: (math.isnan(errors[name]), errors[name]))
    blind = [name for name in probes if name not in errors]
    left_out = f" Too close to rounding to be judged: {', '.join(blind)}." if blind else ""
    words = f"Largest relative error of vᵀHv over {over}, v random; it occurs in layer {name}.{left_out}"
    return worst(ID, TITLE, errors[name], tolerance, words, AFFECTS)


def _skipped(why: str) -> Check:
    return skipped(ID, TITLE, why, AFFECTS)


def _probe(few: Audit, layer: DenseLayer) -> Probe:
    generator = torch.Generator().manual_seed(few.settings.seed)
    shape = (layer.out_features, layer.in_features)
    v = torch.randn(shape, generator=generator, dtype=torch.float64).to(few.train.x.device)
    ours = float((v * LayerHessian(few.train, layer).times(v[None])[0]).sum())
    return Probe(ours, _by_double_backward(few, layer, v), _rounding(few, layer, v))


def _rounding(few: Audit, layer: DenseLayer, v: Tensor) -> float:
    """ε times the numbers that double backward subtracts: the scores f, then terms of size |∂l/∂f_c| (J V x)_c².

    Their difference is tiny where a sure answer is wrong. A squared error has no scores inside an exponential. And
    entries of H v below the smallest number of the arithmetic come out as 0.
    """
    total = 0.0
    for record in few.train:
        captured = record.layers[layer.name]
        u = torch.einsum("ncto,nto->nc", captured.J.double(), captured.x.double() @ v.T)
        terms = (captured.gradient.abs().clamp(max=1) * u.square()).sum(1)
        scores = 0 if isinstance(few.loss, SquaredError) else record.f.abs().amax(1)
        total += float((terms * (1 + scores)).sum())
    smallest = torch.finfo(layer.weight(few.network).dtype).tiny
    return ROUNDING * (few.epsilon * total / len(few.train) + smallest * float(v.abs().sum()))


def _by_double_backward(few: Audit, layer: DenseLayer, v: Tensor) -> float:
    """vᵀ H v."""
    name = f"{layer.module}.weight".lstrip(".")
    W = few.network.get_parameter(name).detach().clone().requires_grad_()
    v = v.reshape(W.shape).to(W)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        batches = few.capture.batches(few.train.x, few.train.y)
        answers = [functional_call(few.network, {name: W}, (batch.x,))[: batch.rows] for batch in batches]
        loss = few.loss.value(torch.cat(answers).reshape(len(few.train), -1).double(), few.train.y)
        (g,) = torch.autograd.grad(loss.mean(), W, create_graph=True)
        if not g.requires_grad:
            return 0.0
        (Hv,) = torch.autograd.grad((g * v).sum(), W, allow_unused=True, materialize_grads=True)
    return float((v * Hv).sum())


# Are the invariant numbers invariant? The network is really rescaled, and measured again.
#
# Where the function between two dense layers is positively homogeneous, such as ReLU, multiplying what enters a hidden
# neuron by a > 0 and dividing what leaves it by a changes no answer of the network. κ and κ_τ must not move when all
# neurons of a layer share one a; ρ must not move even when each has its own.


RESCALED_TOLERANCE = 1e-6
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
    tolerance = RESCALED_TOLERANCE if few.network_is_double else 1e-2
    before: dict[str, LayerFlatness] | None = None
    checks = []
    for id, title, names, spread in (
        ("rescaling-layers", "Rescaling whole layers moves no invariant number", LAYER_WISE, False),
        ("rescaling-neurons", "Rescaling single neurons does not move ρ", NEURON_WISE, True),
    ):
        network = _rescaled_somewhere(few, spread)
        let_go(audit.model.weights)
        if network is None:
            why = NO_PAIR if len(dense_only(few.layers)) > 1 else ONE_LAYER
            checks.append(skipped(id, title, why, ["flatness"]))
            continue
        flatness = _flatness if audit.plan.is_exact("checks") else _sampled_flatness
        before = before or flatness(few)
        moved = _largest_change(before, flatness(on_few_samples(audit, network)), names)
        words = f"Largest relative change of {', '.join(names)} over {len(few.train)} samples after a random rescaling."
        checks.append(worst(id, title, moved, tolerance, words, ["flatness"]))
        del network
        let_go(audit.model.weights)
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
