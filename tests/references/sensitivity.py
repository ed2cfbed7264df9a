"""Sensitivity and volume the slow, obviously right way: one sample at a time, every Jacobian by autograd, float64."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call


def numbers(network: nn.Module, x: Tensor, dense: list[str]) -> dict[str, object]:
    """Every number of the sensitivity blocks; `dense` are the paths of the dense layers, the first one first."""
    network = network.double().eval()
    x = x.double() if x.is_floating_point() else x
    samples = [_of_sample(network, x_i[None], dense) for x_i in x]
    return {
        "network": _network(samples),
        "layers": {path: _layer(network, [sample["layers"][path] for sample in samples], path) for path in dense},
        "chain": _chain(network, samples, dense[0]),
        "bounds": _bounds(network, samples, dense),
    }


def _rows(f: Tensor, targets: list[Tensor]) -> list[Tensor]:
    """∂f_c/∂target [C, *shape] of each target."""
    rows = [torch.autograd.grad(f_c, targets, retain_graph=True, materialize_grads=True) for f_c in f]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _of_sample(network: nn.Module, x: Tensor, dense: list[str]) -> dict:
    parameters = {name: value.detach().clone().requires_grad_() for name, value in network.named_parameters()}
    leaf = x.clone().requires_grad_() if x.is_floating_point() else x
    inputs: dict[str, list[Tensor]] = {path: [] for path in dense}
    outputs: dict[str, list[Tensor]] = {path: [] for path in dense}
    handles = []
    for path in dense:

        def keep(_module, given, z, path=path):
            inputs[path].append(given[0])
            outputs[path].append(z)
            return z.clone()

        handles.append(network.get_submodule(path).register_forward_hook(keep))
    f = functional_call(network, parameters, (leaf,)).reshape(-1)
    for handle in handles:
        handle.remove()
    by_parameter = dict(zip(parameters, _rows(f, list(parameters.values())), strict=True))
    K = _rows(f, [leaf])[0].flatten(1) if leaf.requires_grad else None
    squares = {name: value.square().sum(0) for name, value in by_parameter.items()}
    layers = {}
    for path in dense:
        W = network.get_submodule(path).weight.detach().flatten(1)
        out, width = W.shape
        X = torch.cat([_tokens(given, width) for given in inputs[path]]).detach()
        J = torch.cat([_token_rows(rows, out) for rows in _rows(f, outputs[path])], 1)  # [C, T, out]
        whole = torch.cat([_token_rows(rows, width) for rows in _rows(f, inputs[path])], 1)
        layers[path] = {
            "X": X.numpy(),
            "K": (J @ W).flatten(1).numpy(),
            "whole": whole.flatten(1).numpy(),
            "gradient": torch.einsum("cto,ti->coi", J, X).square().sum().item(),
        }
    return {
        "x": x.flatten().numpy(),
        "K": None if K is None else K.numpy(),
        "theta": sum(value.sum().item() for value in squares.values()),
        "adaptive": sum((value * parameters[name].square()).sum().item() for name, value in squares.items()),
        "layers": layers,
    }


def _tokens(values: Tensor, features: int) -> Tensor:
    return values.reshape(-1, features)


def _token_rows(rows: Tensor, features: int) -> Tensor:
    return rows.reshape(len(rows), -1, features)


def log_volume(K: np.ndarray) -> float:
    """½ ln det(K Kᵀ), −inf where the rank is below the number of rows."""
    s = np.linalg.svd(K, compute_uv=False)
    if len(s) < len(K) or s[-1] <= max(K.shape) * np.finfo(float).eps * s[0]:
        return -math.inf
    return float(np.log(s).sum())


def centred(K: np.ndarray) -> np.ndarray:
    """K in an orthonormal basis of what is orthogonal to (1, …, 1)."""
    C = len(K)
    basis = np.linalg.svd(np.eye(C) - np.ones((C, C)) / C)[0][:, : C - 1]
    return basis.T @ K


def spectral(K: np.ndarray) -> float:
    return float(np.linalg.norm(K, 2))


def _volumes(logs: list[float]) -> dict[str, float | int | None]:
    full = [value for value in logs if math.isfinite(value)]
    mean = sum(math.exp(value) for value in full) / len(logs)
    return {
        "mean_log_volume": sum(full) / len(full) if full else None,
        "log_mean_volume": math.log(mean) if full else None,
        "rank_deficient_samples": len(logs) - len(full),
    }


def _network(samples: list[dict]) -> dict[str, float | int | None]:
    n = len(samples)
    found: dict[str, float | int | None] = {
        "sharpness": sum(sample["theta"] for sample in samples) / n,
        "adaptive_sharpness": sum(sample["adaptive"] for sample in samples) / n,
        "nmls": sum(spectral(layer["K"]) for sample in samples for layer in sample["layers"].values()) / n,
    }
    logs = [log_volume(layer["K"]) for sample in samples for layer in sample["layers"].values()]
    total = sum(math.exp(value) for value in logs) / n
    found["log_network_volume"] = math.log(total) if total > 0 else None
    if samples[0]["K"] is None:
        return found
    Ks, xs = [sample["K"] for sample in samples], [sample["x"] for sample in samples]
    eigenvalues = [np.linalg.eigvalsh(K @ K.T) for K in Ks if K.any()]
    found |= _volumes([log_volume(K) for K in Ks])
    if len(Ks[0]) > 1:
        found["mean_log_volume_centred"] = _volumes([log_volume(centred(K)) for K in Ks])["mean_log_volume"]
    found |= {
        "mls": sum(spectral(K) for K in Ks) / n,
        "dimensionality": float(np.mean([lam.sum() ** 2 / (lam**2).sum() for lam in eigenvalues])),
        "input_invariant_mls": sum((K**2 * x**2).sum() for K, x in zip(Ks, xs, strict=True)) / n,
        "normalized_mls": sum((x**2).sum() * spectral(K) ** 2 for K, x in zip(Ks, xs, strict=True)) / n,
    }
    return found


def _layer(network: nn.Module, layers: list[dict], path: str) -> dict[str, float | int | None]:
    W = network.get_submodule(path).weight.detach().flatten(1).numpy()
    return {
        "mls": sum(spectral(layer["K"]) for layer in layers) / len(layers),
        **_volumes([log_volume(layer["K"]) for layer in layers]),
        "weight_spectral_norm": spectral(W),
        "sharpness": sum(layer["gradient"] for layer in layers) / len(layers),
        "total_mls": sum(spectral(layer["whole"]) for layer in layers) / len(layers),
        "skip_mls": sum(spectral(layer["whole"] - layer["K"]) for layer in layers) / len(layers),
    }


def _reach(X: np.ndarray) -> float:
    """σ_min of the tokens, ‖x‖ for one."""
    return 0.0 if X.shape[0] > X.shape[1] else float(np.linalg.svd(X, compute_uv=False)[-1])


def _norm(network: nn.Module, path: str) -> float:
    return spectral(network.get_submodule(path).weight.detach().flatten(1).numpy())


def _chain(network: nn.Module, samples: list[dict], path: str) -> dict[str, float]:
    W, n = _norm(network, path), len(samples)
    layers = [sample["layers"][path] for sample in samples]
    reach = [_reach(layer["X"]) for layer in layers]
    if min(reach) == 0:
        return {}
    inverse = math.sqrt(sum(1 / r**2 for r in reach) / n)
    return {
        "A": sum(spectral(layer["K"]) for layer in layers) / n,
        "B": W / n * sum(math.sqrt(layer["gradient"]) / r for layer, r in zip(layers, reach, strict=True)),
        "C": W * inverse * math.sqrt(sum(layer["gradient"] for layer in layers) / n),
        "D": W * inverse * math.sqrt(sum(sample["theta"] for sample in samples) / n),
    }


def _bounds(network: nn.Module, samples: list[dict], dense: list[str]) -> dict[str, tuple[float, float]]:
    """Left and right side by proposition, for networks where every input of every layer has full rank."""
    n, N = len(samples), len(samples[0]["layers"][dense[0]]["K"])
    S = sum(sample["theta"] for sample in samples) / n
    ratio = {p: [_norm(network, p) / (_reach(s["layers"][p]["X"]) or math.nan) for s in samples] for p in dense}
    found = {}
    for volume, sensitivity, paths in (("prop-3.4", "prop-3.8", dense[:1]), ("prop-3.6", "prop-3.10", dense)):
        Ks = [sample["layers"][path]["K"] for sample in samples for path in paths]
        ratios = np.concatenate([ratio[path] for path in paths])
        right = np.sqrt((ratios ** (2 * N)).sum()) / n * (n * S / N) ** (N / 2)
        found[volume] = (sum(math.exp(log_volume(K)) for K in Ks) / n, float(right))
        found[sensitivity] = (sum(map(spectral, Ks)) / n, float(np.sqrt((ratios**2).sum() / n) * np.sqrt(S)))
    first = [sample["layers"][dense[0]] for sample in samples]
    d = network.get_submodule(dense[0]).weight.shape[0]
    invariant = sum((layer["K"] ** 2 * layer["X"].flatten() ** 2).sum() for layer in first) / n
    found["prop-e.4"] = (float(invariant) / d, sum(sample["adaptive"] for sample in samples) / n)
    return found
