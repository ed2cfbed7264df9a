"""Both sides of every bound."""

from __future__ import annotations

import math

from references.whole.problem import ZERO, Block, Problem, mean
from references.whole.samples import Sample
from references.whole.volume import log_volume, norm2


def bounds(p: Problem, samples: list[Sample], S: list[float], adaptive: list[float]) -> Block:
    """Both sides of Props. 3.4, 3.6, 3.8, 3.10 and E.4 and of Eq. 35, and the chain of Eq. 48."""
    N, first = len(samples[0].K), p.dense[0]
    found = []
    for volume, sensitivity, paths in (("prop-3.4", "prop-3.8", p.dense[:1]), ("prop-3.6", "prop-3.10", p.dense)):
        kept = [
            (norm2(p.weight(path)) / float(sample.given[path].norm()), sample.local(p.weight(path), path))
            for path in paths
            for sample in samples
            if sample.given[path].norm() > ZERO
        ]
        some = [i for i, sample in enumerate(samples) if any(sample.given[path].norm() > ZERO for path in paths)]
        n, mean_S = len(some), mean([S[i] for i in some])
        left = math.fsum(math.exp(log_volume(K)) for _, K in kept) / n
        right = math.sqrt(math.fsum(ratio ** (2 * N) for ratio, _ in kept)) / n * (n * mean_S / N) ** (N / 2)
        found.append({"id": volume, "left": math.log(left) if left > 0 else None, "right": math.log(right)})
        left = math.fsum(norm2(K) for _, K in kept) / n
        right = math.sqrt(math.fsum(ratio**2 for ratio, _ in kept) / n) * math.sqrt(mean_S)
        found.append({"id": sensitivity, "left": left, "right": right})
    d = len(p.weight(first))
    invariant = [float((s.local(p.weight(first), first).square() * s.given[first].square()).sum()) for s in samples]
    found.append({"id": "prop-e.4", "left": mean(invariant) / d, "right": mean(adaptive)})
    found.append({"id": "eq-35", **_weighted(p, samples)})
    return {"bounds": found, "chain": _chain(p, samples, S)}


def _of_layer(p: Problem, samples: list[Sample], path: str) -> list[tuple[float, float, float]]:
    """‖J W‖₂, ‖∇_W f‖_F and ‖x‖ of every sample whose x is not zero."""
    return [
        (
            norm2(s.local(p.weight(path), path)),
            float(s.by_parameter[f"{path}.weight"].norm()),
            float(s.given[path].norm()),
        )
        for s in samples
        if s.given[path].norm() > ZERO
    ]


def _weighted(p: Problem, samples: list[Sample]) -> Block:
    left = right = 0.0
    for path in p.dense:
        rows = _of_layer(p, samples, path)
        left += mean([mls for mls, _, _ in rows]) / math.sqrt(mean([1 / x**2 for _, _, x in rows]))
        right += norm2(p.weight(path)) * math.sqrt(mean([g**2 for _, g, _ in rows]))
    return {"left": left, "right": right}


def _chain(p: Problem, samples: list[Sample], S: list[float]) -> Block:
    W, rows = norm2(p.weight(p.dense[0])), _of_layer(p, samples, p.dense[0])
    inverse = math.sqrt(mean([1 / x**2 for _, _, x in rows]))
    used = [S[i] for i, sample in enumerate(samples) if sample.given[p.dense[0]].norm() > ZERO]
    return {
        "A": mean([mls for mls, _, _ in rows]),
        "B": W * mean([g / x for _, g, x in rows]),
        "C": W * inverse * math.sqrt(mean([g**2 for _, g, _ in rows])),
        "D": W * inverse * math.sqrt(mean(used)),
    }
