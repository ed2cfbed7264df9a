"""The activity–weight decomposition, slow and obvious: every ΔW formed, every Hessian entry by double backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SAME = 1e-10


@dataclass
class Reference:
    """Numbers of one layer."""

    partner: list[int]
    gap: float
    max_residual: float
    mean_residual: float
    relative_residual: float
    dw: np.ndarray  # [K, out·in]
    g: np.ndarray
    values: np.ndarray  # eigenvalues in the order of sigma_g
    sigma_g: np.ndarray
    sigma_w: np.ndarray
    contribution: np.ndarray
    mean_term: float
    total_g: float
    total_w: float
    trace: float


def loss_of(task: str, f: Tensor, y: Tensor) -> Tensor:
    """Loss of one sample; f [C]."""
    if task == "classification":
        return F.cross_entropy(f[None], y[None].long())
    if task == "binary":
        return F.binary_cross_entropy_with_logits(f.reshape(1), y.reshape(1).double())
    return (f - y).square().sum() / 2


def partners(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, labelled: bool) -> list[int]:
    """The nearest train sample, one by one; −1 where there is none."""
    found = []
    for sample, label in zip(x_test, y_test, strict=True):
        best, at = np.inf, -1
        for i, (candidate, other) in enumerate(zip(x, y, strict=True)):
            distance = ((sample.astype(np.float64) - candidate.astype(np.float64)) ** 2).sum()
            if (not labelled or other == label) and distance < best:
                best, at = distance, i
        found.append(at)
    return found


def hessian(network: nn.Module, module: nn.Module, x: Tensor, y: Tensor, task: str) -> Tensor:
    """Of the mean train loss in the module's weight, by differentiating twice."""
    weight = module.weight.detach().clone()
    name = next(name for name, candidate in network.named_modules() if candidate is module) + ".weight"

    def mean_loss(flat: Tensor) -> Tensor:
        f = torch.func.functional_call(network, {name.lstrip("."): flat.reshape(weight.shape)}, (x,))
        return torch.stack([loss_of(task, row.reshape(-1), target) for row, target in zip(f, y, strict=True)]).mean()

    return torch.autograd.functional.hessian(mean_loss, weight.flatten())


def patches(module: nn.Module, h: Tensor) -> Tensor:
    """What a convolution's kernel sees [n, P, in·k]: the derivative of its first output map by that map's weights."""
    first, seen = module.weight[:1].detach(), []
    for sample in h:

        def answer(weight: Tensor, sample: Tensor = sample) -> Tensor:
            full = torch.cat([weight, module.weight[1:].detach()])
            return torch.func.functional_call(module, {"weight": full}, (sample[None],))[0, 0].flatten()

        seen.append(torch.autograd.functional.jacobian(answer, first).flatten(1))
    return torch.stack(seen)


def decompose(network, module, x, y, x_test, y_test, task="classification", space="input") -> Reference:  # type: ignore[no-untyped-def]
    """Everything, from one module of a network in float64."""
    seen: list[Tensor] = []
    handle = module.register_forward_hook(lambda _m, inputs, _z: seen.append(inputs[0].detach()))
    f, f_test = network(x).detach(), network(x_test).detach()
    handle.remove()
    if isinstance(module, nn.Linear):
        h, h_test = (part.reshape(len(part), -1, module.in_features) for part in seen)
    else:
        h, h_test = (patches(module, part) for part in seen)
    spaces = (x, x_test) if space == "input" else (h, h_test)
    flat = [part.reshape(len(part), -1).numpy() for part in spaces]
    found = partners(flat[0], y.numpy(), flat[1], y_test.numpy(), labelled=task != "regression")
    losses = [float(loss_of(task, row.reshape(-1), target)) for row, target in zip(f, y, strict=True)]
    losses_test = [float(loss_of(task, row.reshape(-1), target)) for row, target in zip(f_test, y_test, strict=True)]
    own = module.weight.detach().clone()
    W = own.flatten(1)
    dws, gs, gaps, residuals = [], [], [], []
    for k, i in enumerate(found):
        if i < 0 or not bool((h[i] != 0).any()):
            continue
        X, X_test = h[i].T, h_test[k].T  # [in, T]
        dw = W @ (X_test - X) @ torch.linalg.pinv(X)
        gap = losses_test[k] - losses[i]
        with torch.no_grad():
            module.weight.copy_((W + dw).reshape(own.shape))
            dual = float(loss_of(task, network(x[i : i + 1]).reshape(-1), y_test[k]))
            module.weight.copy_(own)
        residuals.append(abs(dual - losses_test[k]))
        square = float(dw.square().sum())
        gaps.append(gap)
        dws.append(dw.flatten().numpy())
        gs.append((gap / square * dw).flatten().numpy() if square > 0 else np.zeros(dw.numel()))
    dw, g = np.array(dws), np.array(gs)
    H = hessian(network, module, x, y, task).numpy()
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    vectors = _turned(values, vectors, g)
    w_n, g_n = dw @ vectors, g @ vectors
    order = np.argsort(-g_n.std(0), kind="stable")
    w_n, g_n = w_n[:, order], g_n[:, order]
    return Reference(
        partner=found,
        gap=float(np.mean(gaps)),
        max_residual=max(residuals),
        mean_residual=float(np.mean(residuals)),
        relative_residual=float(np.mean(residuals) / max(np.mean(np.abs(gaps)), 1e-300)),
        dw=dw,
        g=g,
        values=values[order],
        sigma_g=g_n.std(0),
        sigma_w=w_n.std(0),
        contribution=((g_n - g_n.mean(0)) * (w_n - w_n.mean(0))).mean(0),
        mean_term=float((g_n.mean(0) * w_n.mean(0)).sum()),
        total_g=float(g_n.var(0).sum()),
        total_w=float(w_n.var(0).sum()),
        trace=float(np.trace(H)),
    )


def _turned(values: np.ndarray, vectors: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Inside each eigenspace: the eigenvectors of Cov(g) there."""
    vectors = vectors.copy()
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[end] - values[end - 1] > SAME * np.abs(values).max():
            block = vectors[:, start:end]
            covariance = np.atleast_2d(np.cov((g @ block).T, bias=True))
            vectors[:, start:end] = block @ np.linalg.eigh(covariance)[1]
            start = end
    return vectors
