"""Determinants of per-sample gradients, subset by subset."""

from __future__ import annotations

import math

import torch
from references.whole.problem import Block, Problem, mean
from references.whole.samples import Sample
from references.whole.sensitivity import norm2
from torch import Tensor


def _log_determinants(gradients: Tensor, subsets: list[list[int]]) -> list[tuple[float, float]]:
    """Σ ln ‖g‖² and ln det of the cosines, for each subset whose determinant is not zero."""
    found = []
    for subset in subsets:
        G = gradients[subset]
        norms = G.norm(dim=1)
        if len(G) > G.shape[1] or bool((norms == 0).any()):
            continue
        s = torch.linalg.svdvals(G / norms[:, None])
        if s[-1] > 1e-10:
            found.append((float(2 * norms.log().sum()), float(2 * s.log().sum())))
    return found


def _gradients(samples: list[Sample], names: list[str]) -> Tensor:
    return torch.stack([torch.cat([sample.loss_gradient[name].flatten() for name in names]) for sample in samples])


def layer_fisher(p: Problem, path: str, samples: list[Sample], subsets: list[list[int]]) -> Block:
    module = p.network.get_submodule(path)
    own = [value for value in module.parameters() if path not in p.shared or value is not module.weight]
    names = [name for name, value in p.network.named_parameters() if any(value is one for one in own)]
    if not names:
        return {"gamma": None, "singular_subsets": len(subsets)}
    logs = [sum(parts) for parts in _log_determinants(_gradients(samples, names), subsets)]
    return {
        "gamma": mean(logs) if logs else None,
        "gamma_std": float(torch.tensor(logs, dtype=torch.float64).std(correction=0)) if len(logs) > 1 else None,
        "singular_subsets": len(subsets) - len(logs),
    }


def fisher(p: Problem, samples: list[Sample], subsets: list[list[int]], settings: Block) -> Block:
    names, N = list(samples[0].loss_gradient), len(subsets[0])
    G = _gradients(samples, names)
    parts = _log_determinants(G, subsets)
    grams = [G[subset] @ G[subset].T for subset in subsets]
    P = G.shape[1]
    found: Block = {
        "parameters": P,
        "singular_subsets": len(subsets) - len(parts),
        "robustness": mean([norm2(s.slope) ** 2 for s in samples if s.slope is not None])
        if p.x.is_floating_point() and p.task != "regression"
        else None,
        "frobenius_norm": mean([float(K.square().sum()) / N**2 for K in grams]),
        "frobenius_norm_per_sample": mean([float(K.diagonal().square().mean()) for K in grams]),
        "spectral_radius": mean([float(torch.linalg.eigvalsh(K)[-1]) / N for K in grams]),
    }
    if not parts:
        return {**found, "gamma": None}
    gamma = mean([sum(both) for both in parts])
    loss, n = mean(p.losses(p.x, p.y)), len(samples)
    A = settings["volume"] ** (2 / P) * math.pi ** (1 / P) * math.exp(gamma / N) / (4 * math.pi * math.e)
    bound = loss + 2 * math.sqrt((2 * loss + 2 * A + math.log(2 * n / settings["delta"])) / (n - 1))
    return found | {
        "gamma": gamma,
        "gamma_std": float(torch.tensor([sum(both) for both in parts], dtype=torch.float64).std(correction=0)),
        "gamma_norms": mean([norms for norms, _ in parts]),
        "gamma_angles": mean([angles for _, angles in parts]),
        "gamma_full": P / N * gamma - P * math.log(P),
        "pac_bayes": None if p.task == "regression" else {"bound": bound, "complexity": A},
    }
