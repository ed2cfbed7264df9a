"""Is the Hessian the Hessian? Its product with a random direction, against plain double backward on the weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.blocks.checks import Check, skipped, worst
from audit.checks.few import few_samples
from audit.curvature.spectrum import LayerHessian
from audit.layers import DenseLayer
from audit.measure import Audit

ID, TITLE = "hessian-probe", "The Hessian agrees with plain double differentiation"
TOLERANCE = 1e-8
ROUNDING = 1024  # in units of the arithmetic's ε: what a few sums and differences of large numbers lose
FEW = 32


def check_curvature(audit: Audit) -> Check:
    """vᵀ H v of every layer, from (x, J, S) and by differentiating the loss twice with respect to W."""
    few = few_samples(audit, most=FEW)
    layers = [layer for layer in few.layers if layer.calls == 1 and not layer.tied_with]
    affects = ["flatness", "duality"]
    if not layers:
        return skipped(ID, TITLE, "Every dense layer shares its weights, so none has a Hessian of its own.", affects)
    try:
        errors = {layer.name: _relative_error(few, layer) for layer in layers}
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        why = f"The network cannot be differentiated twice ({reason}); only Gauss–Newton is to be had."
        return skipped(ID, TITLE, why, affects)
    name = max(errors, key=errors.__getitem__)
    tolerance = TOLERANCE if few.network_is_double else 1e-2
    words = (
        f"Largest relative error of vᵀHv over {len(few.train)} samples, v random, beyond what double differentiation "
        f"itself loses to rounding; it occurs in layer {name}."
    )
    return worst(ID, TITLE, errors[name], tolerance, words, affects)


def _relative_error(few: Audit, layer: DenseLayer) -> float:
    generator = torch.Generator().manual_seed(few.settings.seed)
    shape = (layer.out_features, layer.in_features)
    v = torch.randn(shape, generator=generator, dtype=torch.float64).to(few.train.x.device)
    ours = float((v * LayerHessian(few.train, layer).times(v[None])[0]).sum())
    theirs, rounding = _by_double_backward(few, layer, v), ROUNDING * few.epsilon * _reach(few, layer, v)
    return max(0.0, abs(ours - theirs) - rounding) / max(abs(theirs), 1e-300)


def _reach(few: Audit, layer: DenseLayer, v: Tensor) -> float:
    """Mean ‖J V x‖²: double backward subtracts numbers of this size where p (1 − p) of a sure answer is tiny."""
    total = 0.0
    for record in few.train:
        captured = record.layers[layer.name]
        total += float(torch.einsum("ncto,nto->nc", captured.J.double(), captured.x.double() @ v.T).square().sum())
    return total / len(few.train)


def _by_double_backward(few: Audit, layer: DenseLayer, v: Tensor) -> float:
    """vᵀ H v."""
    name = f"{layer.module}.weight".lstrip(".")
    W = few.network.get_parameter(name).detach().clone().requires_grad_()
    v = v.reshape(W.shape).to(W)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        batches = few.capture.batches(few.train.x, few.train.y)
        answers = [functional_call(few.network, {name: W}, (x,))[:rows] for _, rows, x, _ in batches]
        loss = few.loss.value(torch.cat(answers).reshape(len(few.train), -1).double(), few.train.y)
        (g,) = torch.autograd.grad(loss.mean(), W, create_graph=True)
        if not g.requires_grad:
            return 0.0
        (Hv,) = torch.autograd.grad((g * v).sum(), W, allow_unused=True, materialize_grads=True)
    return float((v * Hv).sum())
