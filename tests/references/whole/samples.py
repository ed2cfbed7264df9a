"""What plain autograd says about one train sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from references.whole.problem import Problem, vectors_in, vectors_out
from torch import Tensor, nn

EPSILON = 2.3e-16
Calls = dict[str, list[tuple[Tensor, Tensor]]]  # by layer, what it was given and what it answered, each time


@dataclass(frozen=True)
class Sample:
    """Everything about one train sample, by autograd; T vectors reach a layer, over all its uses."""

    x: Tensor  # [D]
    K: Tensor | None  # [C, D]         ∂f/∂x; None for whole numbers
    by_parameter: dict[str, Tensor]  # [C, *shape]  ∂f/∂θ
    loss_gradient: dict[str, Tensor]  # ∂l/∂θ
    slope: Tensor | None  # [C, D]     ∂softmax/∂x
    given: dict[str, Tensor]  # [T, in]   by layer
    J: dict[str, Tensor]  # [C, T, out]   by layer
    local: dict[str, Tensor]  # [C, size of its input]  ∂f/∂(its input), through the layer alone
    whole: dict[str, Tensor]  # [C, size of its input]  the same, all ways together

    @property
    def outputs(self) -> int:
        """C, the number of scores."""
        return len(next(iter(self.by_parameter.values())))

    def gradient(self, path: str) -> Tensor:
        """∂f/∂W [C, out, in] as far as it comes from this layer's own uses."""
        return torch.stack([J.T @ self.given[path] for J in self.J[path]])

    def x_norm(self, path: str) -> float:
        """The smallest singular value of X as a map on tokens, ‖x‖ for one; 0 where the tokens depend."""
        X = self.given[path]
        s = torch.linalg.svdvals(X)
        dependent = len(X) > X.shape[1] or (len(X) > 1 and s[-1] <= max(X.shape) * EPSILON * s[0])
        return 0.0 if dependent else float(s[-1])


def sample_of(p: Problem, i: int) -> Sample:
    values = {name: value.detach().clone().requires_grad_() for name, value in p.network.named_parameters()}
    x = p.x[i : i + 1]
    leaf = x.clone().requires_grad_() if x.is_floating_point() else x
    f, calls = _run(p, leaf, values)
    leaves = list(values.values())
    by_name = dict(zip(values, _rows(f, leaves), strict=True))
    pull = _rows(p.loss(p.x[i], p.y[i], values)[None], leaves)
    probabilities = torch.cat([f, 0 * f]).softmax(0) if p.task == "binary" else f.softmax(0)
    modules = {path: p.network.get_submodule(path) for path in p.layers}
    J = {path: [_rows(f, [z])[0] for _, z in calls[path]] for path in p.layers}
    return Sample(
        x=p.x[i].flatten(),
        K=_rows(f, [leaf])[0].reshape(len(f), -1) if x.is_floating_point() else None,
        by_parameter=by_name,
        loss_gradient={name: value[0] for name, value in zip(values, pull, strict=True)},
        slope=_rows(probabilities, [leaf])[0].reshape(len(probabilities), -1) if x.is_floating_point() else None,
        given={path: torch.cat([vectors_in(m, x).detach() for x, _ in calls[path]]) for path, m in modules.items()},
        J={path: torch.cat([_vectors(m, rows) for rows in J[path]], 1) for path, m in modules.items()},
        local={path: _side_by_side(map(_through, calls[path], J[path])) for path in modules},
        whole={path: _side_by_side(_rows(f, [x])[0] for x, _ in calls[path]) for path in modules},
    )


def _run(p: Problem, x: Tensor, values: dict[str, Tensor]) -> tuple[Tensor, Calls]:
    """Scores f [C] of one sample, and what the layers saw."""
    calls: Calls = {path: [] for path in p.layers}
    hooks = []
    for path in p.layers:

        def keep(_m: nn.Module, given: tuple[Tensor, ...], z: Tensor, path: str = path) -> None:
            calls[path].append((given[0], z))

        hooks.append(p.network.get_submodule(path).register_forward_hook(keep))
    f = p.scores(x, values)[0]
    for hook in hooks:
        hook.remove()
    return f, calls


def _rows(f: Tensor, targets: list[Tensor]) -> list[Tensor]:
    """∂f/∂target [C, *shape] for each target."""
    grads = [torch.autograd.grad(s, targets, retain_graph=True, allow_unused=True) for s in f]
    filled = [[torch.zeros_like(t) if v is None else v for v, t in zip(g, targets, strict=True)] for g in grads]
    return [torch.stack(column) for column in zip(*filled, strict=True)]


def _through(call: tuple[Tensor, Tensor], J: Tensor) -> Tensor:
    """J [C, *shape of z] brought back through this layer alone to what it was given."""
    given, z = call
    return torch.stack([torch.autograd.grad(z, given, row, retain_graph=True)[0] for row in J])


def _vectors(module: nn.Module, rows: Tensor) -> Tensor:
    return torch.stack([vectors_out(module, row) for row in rows])


def _side_by_side(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], 1)
