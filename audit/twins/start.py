"""Where training begins: the weights of every layer drawn anew, by what the layer is."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from audit.network.hooks import CONVOLUTIONS, modules_with_weights
from audit.twins.index import Recipe

DRAWN = (nn.Linear, *CONVOLUTIONS, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def unknown_layers(network: nn.Module) -> list[str]:
    """Modules with parameters whose start nobody can tell: a network that has some is not trained anew as a whole."""
    return [path for path, module in modules_with_weights(network).items() if not _is_known(module)]


def drawn_start(network: nn.Module, recipe: Recipe, seed: int) -> dict[str, Tensor]:
    """Parameters by name, as before training; the network itself stays as it is."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for path, module in modules_with_weights(network).items():
        start = _norm(module) if _is_norm(module) else _drawn(module, recipe, generator)
        found |= {f"{path}.{name}" if path else name: value for name, value in start.items()}
    return {name: found[name] for name, _ in network.named_parameters()}


def _is_norm(module: nn.Module) -> bool:
    """Also one that an ONNX file holds as an operator."""
    named = module.extra_repr() if not isinstance(module, (*DRAWN, nn.Embedding)) else ""
    return isinstance(module, NORMS) or named.endswith("_norm")


def _is_known(module: nn.Module) -> bool:
    return isinstance(module, (*DRAWN, nn.Embedding)) or _is_norm(module)


def _norm(module: nn.Module) -> dict[str, Tensor]:
    fill = {"weight": torch.ones_like, "bias": torch.zeros_like}
    return {name: fill[name](value.detach()) for name, value in module.named_parameters(recurse=False)}


def _drawn(module: nn.Module, recipe: Recipe, generator: torch.Generator) -> dict[str, Tensor]:
    """Weights times `start_factor`; biases as they come with the recipe's start."""
    weight = module.get_parameter("weight")
    if isinstance(module, nn.Embedding):
        return {"weight": recipe.start_factor * _normal(weight, 1.0, generator)}
    size = weight[0][0].numel() if weight.dim() > 2 else 1
    fan_in, fan_out = weight.shape[1] * size, weight.shape[0] * size
    if recipe.start == "he":
        values = _normal(weight, math.sqrt(2 / fan_in), generator)
    else:
        bound = math.sqrt(6 / (fan_in + fan_out)) if recipe.start == "glorot" else math.sqrt(1 / fan_in)
        values = _uniform(weight, bound, generator)
    found = {"weight": recipe.start_factor * values}
    if getattr(module, "bias", None) is not None:
        bound = math.sqrt(1 / fan_in) if recipe.start == "torch" else 0.0
        found["bias"] = _uniform(module.get_parameter("bias"), bound, generator)
    return found


def _uniform(like: Tensor, bound: float, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(like.shape, generator=generator, dtype=torch.float64) - 1).mul(bound).to(like.dtype)


def _normal(like: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).mul(deviation).to(like.dtype)
