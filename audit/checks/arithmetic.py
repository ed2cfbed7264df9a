"""Is the arithmetic right? The Hessian against plain double backward, the same samples twice, single against double.

The Hessian is probed by its product with a random direction.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.curvature.hessian import LayerHessian
from audit.measures.catalogue import CATALOGUE
from audit.measures.contract import Audit, on_few_samples
from audit.network.layers import DenseLayer
from audit.network.loss import SquaredError
from audit.network.record import Record
from audit.report.blocks import Check, skipped, worst

ID, TITLE = "hessian-probe", "The bending of the loss agrees with plain double differentiation"
TOLERANCE = 1e-8
ROUNDING = 16  # in units of the arithmetic's ε: what a few sums and differences lose
FEW = 32  # samples that the Hessian is probed on
SOME = 3  # layers of a network that is too large for all to be probed
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
    try:
        probes = {layer.name: _probe(few, layer) for layer in layers}
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        return _skipped(f"The network cannot be differentiated twice ({reason}); only Gauss–Newton is to be had.")
    return _judged(probes, over, TOLERANCE if few.network_is_double else 1e-2)


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


# Does the same come out twice, and does it come out in single precision too?


MORE = 256  # samples whose scores are compared in both precisions
EVERYTHING = [entry.key for entry in CATALOGUE if entry.key != "hygiene"]  # which looks at the data


def check_determinism(audit: Audit) -> Check:
    """A second capture of the same samples must give the same bits."""
    few = on_few_samples(audit)
    first, second = (list(few.capture.full(few.train.x, few.train.y)) for _ in range(2))
    different = sum(not _same_bits(a, b) for a, b in zip(first, second, strict=True))
    words = "Chunks whose scores or Jacobians differ in any bit when the same samples are captured again."
    return worst("determinism", "The same samples give the same numbers twice", different, 0, words, EVERYTHING)


def check_single_precision(audit: Audit) -> Check:
    """The scores in float32, as the model would run in production, against float64."""
    few = on_few_samples(audit, most=MORE)
    double = replace(few.capture, network=copy.deepcopy(few.network).double())
    single = replace(few.capture, network=copy.deepcopy(few.network).float())
    precise, rough = (
        torch.cat([record.f for record in capture.forward(few.train.x, few.train.y)]) for capture in (double, single)
    )
    scale = max(float(precise.abs().max()), 1e-300)
    words = (
        f"Largest difference of a score between float32 and float64 over {len(few.train)} samples, relative to the "
        "largest score."
    )
    title = "Single and double precision agree"
    value = float((precise - rough).abs().max()) / scale
    return worst("single-precision", title, value, 1e-3, words, EVERYTHING)


def _same_bits(a: Record, b: Record) -> bool:
    layers = all(torch.equal(a.layers[name].J, b.layers[name].J) for name in a.layers)
    return torch.equal(a.f, b.f) and layers
