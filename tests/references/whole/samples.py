"""What plain autograd says about one train sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from references.whole.problem import Problem
from torch import Tensor, nn


@dataclass(frozen=True)
class Sample:
    """Everything about one train sample, by autograd."""

    x: Tensor  # [D]
    K: Tensor  # [C, D]         ∂f/∂x
    by_parameter: dict[str, Tensor]  # [C, *shape]  ∂f/∂θ
    loss_gradient: dict[str, Tensor]  # ∂l/∂θ
    slope: Tensor  # [C, D]     ∂softmax/∂x
    given: dict[str, Tensor]  # [in]   by layer
    J: dict[str, Tensor]  # [C, out]   by layer
    whole: dict[str, Tensor]  # [C, in]  ∂f/∂(its input), all ways together

    def local(self, weight: Tensor, path: str) -> Tensor:
        """J W [C, in]."""
        return self.J[path] @ weight


def sample_of(p: Problem, i: int) -> Sample:
    values = {name: value.detach().clone().requires_grad_() for name, value in p.network.named_parameters()}
    leaf = p.x[i : i + 1].clone().requires_grad_()
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = []
    for path in p.dense:

        def keep(_m: nn.Module, given: tuple[Tensor, ...], z: Tensor, path: str = path) -> None:
            seen[path] = (given[0], z)

        hooks.append(p.network.get_submodule(path).register_forward_hook(keep))
    f = p.scores(leaf, values)[0]
    for hook in hooks:
        hook.remove()
    names, leaves = list(values), list(values.values())
    targets = [*leaves, leaf, *(part for path in p.dense for part in seen[path])]

    def rows(scores: Tensor) -> list[Tensor]:
        grads = [torch.autograd.grad(s, targets, retain_graph=True, allow_unused=True) for s in scores]
        filled = [[torch.zeros_like(t) if v is None else v for v, t in zip(g, targets, strict=True)] for g in grads]
        return [torch.stack(column) for column in zip(*filled, strict=True)]

    found, C = rows(f), len(f)
    probabilities = torch.cat([f, 0 * f]).softmax(0) if p.task == "binary" else f.softmax(0)
    slope = rows(probabilities)[len(names)].reshape(len(probabilities), -1)
    pull = torch.autograd.grad(p.loss(p.x[i], p.y[i], values), leaves, allow_unused=True)
    pull = [torch.zeros_like(t) if v is None else v for v, t in zip(pull, leaves, strict=True)]
    layered = found[len(names) + 1 :]
    return Sample(
        x=p.x[i].flatten(),
        K=found[len(names)].reshape(C, -1),
        by_parameter=dict(zip(names, found, strict=False)),
        loss_gradient=dict(zip(names, pull, strict=True)),
        slope=slope,
        given={path: seen[path][0].detach().flatten() for path in p.dense},
        whole={path: layered[2 * place].reshape(C, -1) for place, path in enumerate(p.dense)},
        J={path: layered[2 * place + 1].reshape(C, -1) for place, path in enumerate(p.dense)},
    )
