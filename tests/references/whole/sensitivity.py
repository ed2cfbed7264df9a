"""Sensitivity and volume from Jacobians that were formed whole."""

from __future__ import annotations

import math

import torch
from references.whole.bounds import bounds, weight_gradient
from references.whole.problem import ZERO, Block, Problem, mean
from references.whole.samples import Sample
from references.whole.volume import log_volume, norm2
from torch import Tensor


def _volumes(Ks: list[Tensor]) -> Block:
    logs = [log_volume(K) for K in Ks]
    full = [value for value in logs if value > -math.inf]
    return {
        "mean_log_volume": mean(full) if full else None,
        "log_mean_volume": math.log(math.fsum(map(math.exp, full)) / len(logs)) if full else None,
        "rank_deficient_samples": len(logs) - len(full),
    }


def layer_sensitivity(p: Problem, path: str, samples: list[Sample]) -> Block:
    W, Ks = p.weight(path), [sample.local[path] for sample in samples]
    found: Block = {
        "mls": mean([norm2(K) for K in Ks]),
        **_volumes(Ks),
        "weight_spectral_norm": norm2(W),
        "sharpness": mean([weight_gradient(p, path, sample) ** 2 for sample in samples]),
        "degenerate_inputs": sum(sample.x_norm(path) == 0 for sample in samples),
        "units_active": [sum(bool(s.J[path][:, :, unit].any()) for s in samples) for unit in range(len(W))],
        "skip": None,
    }
    usable = [sample for sample in samples if sample.x_norm(path) > ZERO]
    if usable and any(not torch.allclose(sample.whole[path], sample.local[path]) for sample in samples):
        total = mean([norm2(sample.whole[path]) for sample in usable])
        skip = mean([norm2(sample.whole[path] - sample.local[path]) for sample in usable])
        right = mean([norm2(W) * weight_gradient(p, path, sample) / sample.x_norm(path) for sample in usable])
        found["skip"] = {"total_mls": total, "skip_mls": skip, "left": total - skip, "right": right}
    return found


def sensitivity(p: Problem, samples: list[Sample]) -> Block:
    values = dict(p.network.named_parameters())
    S = [sum(float(v.square().sum()) for v in sample.by_parameter.values()) for sample in samples]
    adaptive = [
        sum(float((v.square() * values[name].square()).sum()) for name, v in sample.by_parameter.items())
        for sample in samples
    ]
    layered = {path: [sample.local[path] for sample in samples] for path in p.dense}
    logs = [log_volume(K) for each in layered.values() for K in each]
    found: Block = {
        "sharpness": mean(S),
        "sharpness_trace": _trace(p, mean(S)),
        "adaptive_sharpness": mean(adaptive),
        "nmls": sum(mean([norm2(K) for K in each]) for each in layered.values()),
        "log_network_volume": math.log(total) if (total := sum(map(math.exp, logs)) / len(samples)) > 0 else None,
        "matrix_normalized_sharpness": sum(
            norm2(p.weight(path)) * math.sqrt(mean([weight_gradient(p, path, s) ** 2 for s in samples]))
            for path in p.dense
        ),
    }
    return found | _of_input(samples) | bounds(p, samples, S, adaptive)


def _of_input(samples: list[Sample]) -> Block:
    """What ∂f/∂x tells, where there is such a thing."""
    pairs = [(sample.x, sample.K) for sample in samples if sample.K is not None]
    if not pairs:
        return {"mls": None, "mean_rank": None, "dimensionality": None, "rank_deficient_samples": None}
    Ks, C = [K for _, K in pairs], len(pairs[0][1])
    eigenvalues = [torch.linalg.eigvalsh(K @ K.T) for K in Ks if K.any()]
    found: Block = {
        "mls": mean([norm2(K) for K in Ks]),
        **_volumes(Ks),
        "mean_rank": mean([float(torch.linalg.matrix_rank(K)) for K in Ks]),
        "dimensionality": mean([float(v.sum() ** 2 / v.square().sum()) for v in eigenvalues]),
        "input_invariant_mls": mean([float((K.square() * x.square()).sum()) for x, K in pairs]),
        "normalized_mls": mean([float(x.square().sum()) * norm2(K) ** 2 for x, K in pairs]),
    }
    if C > 1:
        centre = torch.linalg.svd(torch.eye(C, dtype=torch.float64) - 1 / C)[0][:, : C - 1]
        centred = _volumes([centre.T @ K for K in Ks])
        found["mean_log_volume_centred"] = centred["mean_log_volume"]
        found["rank_deficient_samples_centred"] = centred["rank_deficient_samples"]
    return found


def _trace(p: Problem, S: float) -> float | None:
    """Tr of the Hessian of ½‖f − y‖² over all parameters; None where it hangs on targets that a classifier lacks."""
    names, generator = list(dict(p.network.named_parameters())), torch.Generator().manual_seed(0)
    f = p.scores(p.x).detach()
    noise = torch.randn(f.shape, generator=generator, dtype=torch.float64)
    residual = f - p.y.reshape(f.shape) if p.task == "regression" else noise
    extra = 0.0
    for name in names:
        value = p.network.get_parameter(name).detach()

        def weighed(flat: Tensor, name: str = name, shape: torch.Size = value.shape) -> Tensor:
            return (residual * p.scores(p.x, {name: flat.reshape(shape)})).sum() / len(f)

        extra += float(torch.autograd.functional.hessian(weighed, value.flatten()).trace())
    return None if p.task != "regression" and abs(extra) > 1e-12 else S + extra
