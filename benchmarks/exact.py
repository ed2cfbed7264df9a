"""The values themselves, by brute force: every per-sample Jacobian formed, on a handful of samples, in float64.

With f [C] the scores of a sample and B = Λ^{1/2} ∂f/∂W of all samples stacked [n·C, weights], the Hessian of the mean
loss in one layer's weights is BᵀB/n (the networks are piecewise linear), so its trace and its nonzero eigenvalues are
those of the small matrix BBᵀ/n. Nothing here is shared with gen-audit or with a peer.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from benchmarks.cases import Case

Array = NDArray[np.float64]


def dense_weights(network: nn.Module) -> list[str]:
    """Names of the weights of the dense layers."""
    return [f"{path}.weight" for path, module in network.named_modules() if isinstance(module, nn.Linear)]


def traces(case: Case) -> Array:
    """Tr H of each dense layer."""
    return np.array([float(gram.trace()) for gram in _curvatures(case)])


def sharpness(case: Case) -> Array:
    """S(θ) = mean ‖∂f/∂θ‖_F² over all parameters."""
    squares = [sum(float(part.square().sum()) for part in J.values()) for J in _jacobians(case)]
    return np.array([np.mean(squares)])


def top_eigenvalues(case: Case, k: int) -> Array:
    """The k largest eigenvalues of each dense layer's Hessian."""
    return np.concatenate([torch.linalg.eigvalsh(gram).flip(0)[:k].numpy() for gram in _curvatures(case)])


def log_determinant(case: Case, subsets: NDArray[np.int64]) -> Array:
    """γ̂: mean ln det of the Gram matrices of loss gradients over `subsets` of samples."""
    network, x = _double(case)
    errors = (network(x).softmax(1) - nn.functional.one_hot(case.y, case.classes)).double()
    gradients = [
        torch.cat([torch.tensordot(error, part, 1).flatten() for part in J.values()])
        for error, J in zip(errors, _jacobians(case), strict=True)
    ]
    G = torch.stack(gradients)
    return np.array([np.mean([float(torch.linalg.slogdet(G[rows] @ G[rows].T)[1]) for rows in subsets])])


def input_map(case: Case) -> Array:
    """MLS = mean ‖∂f/∂x‖₂, and the mean of ½ ln det(∂f/∂x ∂f/∂xᵀ) over the samples where it has full rank."""
    network, x = _double(case)
    s = torch.stack([torch.linalg.svdvals(jacrev(network)(x_i[None])[0].flatten(1)) for x_i in x])
    full = s[:, -1] > max(s.shape[1], x[0].numel()) * torch.finfo(case.x.dtype).eps * s[:, 0]
    return np.array([float(s[:, 0].mean()), float(s[full].log().sum(1).mean())])


def _double(case: Case) -> tuple[nn.Module, Tensor]:
    return copy.deepcopy(case.network).double(), case.x.double()


def _jacobians(case: Case) -> list[dict[str, Tensor]]:
    """∂f/∂θ of every sample, by parameter [C, *shape]."""
    network, x = _double(case)
    values = dict(network.named_parameters())
    scores = jacrev(lambda given, x_i: functional_call(network, given, (x_i[None],))[0])
    return [scores(values, x_i) for x_i in x]


def _curvatures(case: Case) -> list[Tensor]:
    """BBᵀ/n of each dense layer [n·C, n·C]."""
    network, x = _double(case)
    p = network(x).softmax(1)
    roots = [_root(p_i) for p_i in p]
    jacobians = _jacobians(case)
    found = []
    for name in dense_weights(network):
        B = torch.cat([root @ J[name].flatten(1) for root, J in zip(roots, jacobians, strict=True)])
        found.append(B @ B.T / len(x))
    return found


def _root(p: Tensor) -> Tensor:
    """The symmetric square root of Λ = diag p − p pᵀ."""
    values, vectors = torch.linalg.eigh(torch.diag(p) - torch.outer(p, p))
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T
