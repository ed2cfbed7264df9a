"""Closed forms: a layer's gradients, sample by sample, from what went in and what comes back.

Each form looks once at x, the input of one call of the layer, and then takes K backward signals g at its output to the
gradient of every parameter for every sample and signal. None forms more than it returns, but for the unfolded patches.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from audit.patches import Patches
from audit.watch import CONVOLUTIONS

Pull = Callable[[Tensor], dict[str, Tensor]]
"""g [n, K, …] → for each parameter's name its gradients [n, K, *shape]."""
Form = Callable[[nn.Module, Tensor], Pull]
"""module, x [n, …] → how signals become gradients."""


def form_of(module: nn.Module) -> Form | None:
    """The closed form of a layer's kind; None where there is none."""
    if isinstance(module, CONVOLUTIONS):
        return _convolution if module.padding_mode == "zeros" else None
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return _batch_norm if module.track_running_stats and not module.training else None
    kinds: tuple[tuple[type[nn.Module], Form], ...] = (
        (nn.LayerNorm, _layer_norm),
        (nn.GroupNorm, _group_norm),
        (nn.Embedding, _embedding),
        (nn.PReLU, _leaky),
    )
    return next((form for kind, form in kinds if type(module) is kind), None)


def _convolution(module: nn.Module, x: Tensor) -> Pull:
    """∇_W = Σ_p g_p u_pᵀ over the positions p, u_p the patch that the kernel saw there: one product for all signals."""
    assert isinstance(module, CONVOLUTIONS)
    groups = module.groups
    U = Patches.of(module, tuple(x.shape[2:])).columns(x)  # [n, in·k, P]
    U = torch.unflatten(U, 1, (groups, -1)).flatten(0, 1)  # [n·G, in/G·k, P]

    def pull(g: Tensor) -> dict[str, Tensor]:
        (n, K, out), g = g.shape[:3], g.flatten(3)  # [n, K, out, P]
        by_group = torch.unflatten(g, 2, (groups, -1)).transpose(1, 2).reshape(len(U), -1, g.shape[3])
        weight = torch.bmm(by_group, U.mT)  # [n·G, K·out/G, in/G·k]
        weight = weight.reshape(n, groups, K, out // groups, -1).transpose(1, 2)
        return _named(module, weight.reshape(n, K, *module.weight.shape), g.sum(3))

    return pull


def _batch_norm(module: nn.Module, x: Tensor) -> Pull:
    assert isinstance(module, nn.modules.batchnorm._BatchNorm)
    return _scaled(module, F.batch_norm(x, module.running_mean, module.running_var, eps=module.eps))


def _group_norm(module: nn.Module, x: Tensor) -> Pull:
    assert isinstance(module, nn.GroupNorm)
    return _scaled(module, F.group_norm(x, module.num_groups, eps=module.eps))


def _scaled(module: nn.Module, normal: Tensor) -> Pull:
    """Of z = γ x̂ + β with one γ and β per channel: ∇_γ = Σ_p g_p x̂_p and ∇_β = Σ_p g_p over the positions p."""
    normal = normal[:, None]
    normal = normal.flatten(3) if normal.dim() > 3 else normal[..., None]

    def pull(g: Tensor) -> dict[str, Tensor]:
        g = g.flatten(3) if g.dim() > 3 else g[..., None]
        return _named(module, (g * normal).sum(3), g.sum(3))

    return pull


def _layer_norm(module: nn.Module, x: Tensor) -> Pull:
    """As above, with γ and β over the last axes and the positions before them."""
    assert isinstance(module, nn.LayerNorm)
    axes = len(module.normalized_shape)
    normal = F.layer_norm(x, module.normalized_shape, eps=module.eps)[:, None]

    def pull(g: Tensor) -> dict[str, Tensor]:
        positions, product = list(range(2, g.dim() - axes)), g * normal
        return _named(module, product.sum(positions), g.sum(positions)) if positions else _named(module, product, g)

    return pull


def _embedding(module: nn.Module, x: Tensor) -> Pull:
    """Every looked-up row gets the signal of each place where it was looked up."""
    assert isinstance(module, nn.Embedding)
    shape, width = module.weight.shape, module.embedding_dim

    def pull(g: Tensor) -> dict[str, Tensor]:
        n, K = g.shape[:2]
        rows = x.reshape(n, 1, -1, 1).expand(n, K, -1, width)
        weight = torch.zeros(n, K, *shape, dtype=g.dtype, device=g.device)
        return {"weight": weight.scatter_add_(2, rows, g.reshape(n, K, -1, width))}

    return pull


def _leaky(module: nn.Module, x: Tensor) -> Pull:
    """Of z = x above 0 and a x below, a for all channels or one for each: ∇_a = Σ_p g_p min(x_p, 0)."""
    assert isinstance(module, nn.PReLU)
    below, one_slope = x.clamp(max=0)[:, None], module.num_parameters == 1

    def pull(g: Tensor) -> dict[str, Tensor]:
        product = g * below
        if one_slope:
            return {"weight": product.flatten(2).sum(2, keepdim=True)}
        return {"weight": product.flatten(3).sum(3) if product.dim() > 3 else product}

    return pull


def _named(module: nn.Module, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    both = {"weight": weight, "bias": bias}
    return {name: both[name] for name, _ in module.named_parameters(recurse=False)}
