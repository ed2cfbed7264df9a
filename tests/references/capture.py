"""What the capture pass must find, the slow way: one sample, one layer, one entry at a time, by plain autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def loss_of(task: str, f: Tensor, y: Tensor) -> Tensor:
    """The loss of one sample; f [C]."""
    if task == "regression":
        return (f - y).pow(2).sum() / 2
    if task == "binary":
        return F.binary_cross_entropy_with_logits(f[0], y.to(f.dtype))
    return F.cross_entropy(f[None], y[None])


def scores_shifted(network: nn.Module, path: str, x: Tensor, shift: Tensor) -> Tensor:
    """Scores [C] of one sample x [1, ...] when the layer's raw answer is shifted; shift has the answer's own shape."""
    module = network.get_submodule(path)
    handle = module.register_forward_hook(lambda _m, _i, z: z + shift.reshape(z.shape))
    try:
        return network(x).reshape(-1)
    finally:
        handle.remove()


def raw_answer(network: nn.Module, path: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Input and output of the layer for one sample."""
    seen: list[tuple[Tensor, Tensor]] = []
    handle = network.get_submodule(path).register_forward_hook(lambda _m, i, z: seen.append((i[0], z)))
    try:
        network(x)
    finally:
        handle.remove()
    return seen[0]


def jacobian(network: nn.Module, path: str, x: Tensor) -> Tensor:
    """∂f/∂z of one sample [C, size of z]."""
    zero = torch.zeros(raw_answer(network, path, x)[1].numel(), dtype=x.dtype)
    return torch.autograd.functional.jacobian(lambda shift: scores_shifted(network, path, x, shift), zero)


def loss_derivatives(network: nn.Module, path: str, x: Tensor, y: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """∂l/∂z and ∂²l/∂z² of one sample."""
    zero = torch.zeros(raw_answer(network, path, x)[1].numel(), dtype=x.dtype)

    def loss(shift: Tensor) -> Tensor:
        return loss_of(task, scores_shifted(network, path, x, shift), y)

    gradient: Callable[..., Tensor] = torch.autograd.functional.jacobian
    with sdpa_kernel(SDPBackend.MATH):
        return gradient(loss, zero), torch.autograd.functional.hessian(loss, zero)


def input_jacobian(network: nn.Module, x: Tensor) -> Tensor:
    """∂f/∂input of one sample [C, D]."""
    J = torch.autograd.functional.jacobian(lambda value: network(value).reshape(-1), x)
    return J.reshape(len(J), -1)
