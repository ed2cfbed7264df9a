"""A penalty on κ_τ, the reparameterization-invariant flatness of Petzka et al. (2019), differentiable in the weights.

For a dense layer z = W x + b, with J = ∂f/∂z and Λ the curvature of the loss in the scores f,

    κ_τ = ‖W‖² Tr H,    Tr H = mean_i ‖x_i‖² Tr(J_iᵀ Λ_i J_i)

where the network behind the layer is piecewise linear; of a curved one this is the Gauss–Newton part. With Λ = Lᵀ L the
inner trace is Σ_c ‖Jᵀ Lᵀ e_c‖², or the mean of ‖Jᵀ Lᵀ s‖² over random signs s: one backward pass instead of C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from audit.errors import UsageError
from audit.network.hooks import hooked, scores
from audit.network.loss import LOSS_OF_TASK


def flatness_penalty(
    network: nn.Module, x: Tensor, layers: Sequence[str], *, task: str = "classification", signs: int = 0
) -> Tensor:
    """Σ κ_τ over the dense layers of these names, on the samples x [n, …]; the labels play no part in it.

    `signs`: random signs instead of all scores, unbiased, for networks with many scores. To train with it:

        for x, y in batches:
            optimizer.zero_grad()
            loss = cross_entropy(network(x), y) + 1e-3 * flatness_penalty(network, x, ["fc2"])
            loss.backward()
            optimizer.step()
    """
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(path: str, given: tuple[Tensor, ...], answer: Tensor) -> None:
        seen[path] = given[0], answer

    with hooked(network, {path: lambda _m, i, o, path=path: keep(path, i, o) for path in _dense(network, layers)}):
        f = scores(network, x)
    z = [seen[path][1] for path in layers]
    squares = [torch.zeros((), dtype=f.dtype, device=f.device) for _ in layers]
    for v in _probes(f, signs):
        u = LOSS_OF_TASK[task].curvature_root_transposed_times(f, f[:, 0], v)  # of tags alone would labels matter
        for place, back in enumerate(torch.autograd.grad(f, z, u, create_graph=True)):
            norms = seen[layers[place]][0].square().sum(-1)
            squares[place] = squares[place] + (norms * back.square().sum(-1)).mean() / max(1, signs)
    weights = [network.get_submodule(path).get_parameter("weight") for path in layers]
    return torch.stack([w.square().sum() * trace for w, trace in zip(weights, squares, strict=True)]).sum()


def _dense(network: nn.Module, layers: Iterable[str]) -> list[str]:
    known = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    for path in layers:
        if path not in known:
            raise UsageError(f"flatness_penalty: {path!r} is no dense layer; the network has {', '.join(known)}.")
    return list(layers)


def _probes(f: Tensor, signs: int) -> Iterable[Tensor]:
    """Unit vectors of all scores, or random signs [n, C]."""
    if signs:
        return (torch.randint(2, f.shape, device=f.device).to(f.dtype) * 2 - 1 for _ in range(signs))
    return (row.expand_as(f) for row in torch.eye(f.shape[1], dtype=f.dtype, device=f.device))
