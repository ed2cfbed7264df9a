"""Both sides of every bound."""

from __future__ import annotations

import math

from references.whole.problem import ZERO, Block, Problem, mean
from references.whole.samples import Sample
from references.whole.volume import log_volume, norm2


def weight_gradient(p: Problem, path: str, sample: Sample) -> float:
    """‖∇_W f‖_F by plain autograd; of weights that act elsewhere, too, the part that comes from this layer."""
    return float(sample.gradient(path).norm() if path in p.shared else sample.by_parameter[p.parameter(path)].norm())


def bounds(p: Problem, samples: list[Sample], S: list[float], adaptive: list[float]) -> Block:
    """Both sides of Props. 3.4, 3.6, 3.8, 3.10 and E.4 and of Eq. 35, and the chain of Eq. 48."""
    found = [
        *_volume_and_sensitivity(p, samples, S, ("prop-3.4", "prop-3.8"), p.dense[:1]),
        *_volume_and_sensitivity(p, samples, S, ("prop-3.6", "prop-3.10"), p.dense),
        {"id": "prop-e.4", **_invariant(p, samples, adaptive)},
        {"id": "eq-35", **_weighted(p, samples)},
    ]
    return {"bounds": found, "chain": _chain(p, samples, S)}


def _usable(p: Problem, path: str, sample: Sample) -> bool:
    return path not in p.shared and sample.x_norm(path) > ZERO


def _volume_and_sensitivity(
    p: Problem, samples: list[Sample], S: list[float], ids: tuple[str, str], paths: tuple[str, ...]
) -> list[Block]:
    kept = [
        (norm2(p.weight(path)) / sample.x_norm(path), sample.local[path])
        for path in paths
        for sample in samples
        if _usable(p, path, sample)
    ]
    left_out = len(paths) * len(samples) - len(kept)
    if not kept:
        return [{"id": id, "left": None, "right": None, "left_out": left_out} for id in ids]
    some = [i for i, sample in enumerate(samples) if any(_usable(p, path, sample) for path in paths)]
    n, N, mean_S = len(some), samples[0].outputs, mean([S[i] for i in some])
    volume = math.fsum(math.exp(log_volume(K)) for _, K in kept) / n
    norms = math.fsum(float(K.norm()) ** N for _, K in kept) / n / N ** (N / 2)
    right = math.sqrt(math.fsum(ratio ** (2 * N) for ratio, _ in kept)) / n * (n * mean_S / N) ** (N / 2)
    logs = {"left": math.log(volume) if volume > 0 else None, "middle": math.log(norms), "right": math.log(right)}
    left = math.fsum(norm2(K) for _, K in kept) / n
    right = math.sqrt(math.fsum(ratio**2 for ratio, _ in kept) / n) * math.sqrt(mean_S)
    return [
        {"id": ids[0], **logs, "left_out": left_out},
        {"id": ids[1], "left": left, "right": right, "left_out": left_out},
    ]


def _invariant(p: Problem, samples: list[Sample], adaptive: list[float]) -> Block:
    """Not proven for tokens, nor for weights that act elsewhere, too."""
    first = p.dense[0]
    if len(samples[0].given[first]) > 1 or first in p.shared:
        return {"left": None, "right": None}
    invariant = [float((s.local[first].square() * s.given[first].flatten().square()).sum()) for s in samples]
    return {"left": mean(invariant) / len(p.weight(first)), "right": mean(adaptive)}


def _of_layer(p: Problem, samples: list[Sample], path: str) -> list[tuple[float, float, float]]:
    """‖J W‖₂, ‖∇_W f‖_F and ‖x‖ of every sample that the bounds speak of."""
    return [(norm2(s.local[path]), weight_gradient(p, path, s), s.x_norm(path)) for s in samples if _usable(p, path, s)]


def _weighted(p: Problem, samples: list[Sample]) -> Block:
    left = right = 0.0
    measured = [(path, rows) for path in p.dense if (rows := _of_layer(p, samples, path))]
    for path, rows in measured:
        left += mean([mls for mls, _, _ in rows]) / math.sqrt(mean([1 / x**2 for _, _, x in rows]))
        right += norm2(p.weight(path)) * math.sqrt(mean([g**2 for _, g, _ in rows]))
    return {"left": left, "right": right} if measured else {"left": None, "right": None}


def _chain(p: Problem, samples: list[Sample], S: list[float]) -> Block | None:
    W, rows = norm2(p.weight(p.dense[0])), _of_layer(p, samples, p.dense[0])
    if not rows:
        return None
    inverse = math.sqrt(mean([1 / x**2 for _, _, x in rows]))
    used = [S[i] for i, sample in enumerate(samples) if _usable(p, p.dense[0], sample)]
    return {
        "A": mean([mls for mls, _, _ in rows]),
        "B": W * mean([g / x for _, g, x in rows]),
        "C": W * inverse * math.sqrt(mean([g**2 for _, g, _ in rows])),
        "D": W * inverse * math.sqrt(mean(used)),
    }
