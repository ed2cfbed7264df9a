"""A whole audit the slow way: plain autograd in float64, one sample and one weight after the other.

Nothing here is taken from the audit, and nothing is clever: what a formula names is formed. The answer has the shape of
the report's JSON, so that the two are laid side by side number by number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from references.spectrum import eigenbasis, elbow
from torch import Tensor, nn
from torch.func import functional_call

Block = dict[str, Any]
DUAL = 1e-9  # beyond it, times the largest loss, the duality does not hold
ZERO = 1e-100  # an input smaller than this has no inverse


@dataclass(frozen=True)
class Problem:
    """A network in float64 and eval mode with its data; `dense` names its dense layers, first to last."""

    network: nn.Module
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    task: str
    dense: tuple[str, ...]

    def scores(self, x: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """f [n, C] under the network's own parameters, or with some exchanged."""
        return functional_call(self.network, values or {}, (x,)).reshape(len(x), -1)

    def losses(self, x: Tensor, y: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """[n]; −ln p_y is written without ever forming 1 − p_y."""
        f = self.scores(x, values)
        if self.task == "regression":
            return (f - y.reshape(f.shape)).square().sum(1) / 2
        if self.task == "binary":
            return F.softplus(torch.where(y == 1, -f[:, 0], f[:, 0]), threshold=100)
        mine = F.one_hot(y, f.shape[1]).bool()
        others = (f - f[mine][:, None]).masked_fill(mine, -torch.inf)
        return F.softplus(others.logsumexp(1), threshold=100)

    def loss(self, x: Tensor, y: Tensor, values: dict[str, Tensor] | None = None) -> Tensor:
        """Of one sample."""
        return self.losses(x[None], y[None], values)[0]

    def wrong(self, x: Tensor, y: Tensor) -> Tensor:
        """[n], 1 for a wrong answer."""
        f = self.scores(x)
        answers = (f[:, 0] >= 0).long() if self.task == "binary" else f.argmax(1)
        return (answers != y).double()

    def weight(self, path: str) -> Tensor:
        return self.network.get_submodule(path).weight.detach()

    def inside(self, path: str, x: Tensor) -> tuple[Tensor, Tensor]:
        """What a layer is given and what it answers."""
        seen: list[tuple[Tensor, Tensor]] = []
        hook = self.network.get_submodule(path).register_forward_hook(lambda _m, i, z: seen.append((i[0], z)))
        self.network(x)
        hook.remove()
        return seen[0][0].detach(), seen[0][1].detach()


def whole(problem: Problem, subsets: list[list[int]], settings: Block) -> Block:
    """Everything that a report says about a network and its gap, intervals aside."""
    samples = [_sample(problem, i) for i in range(len(problem.x))]
    layers = []
    for path in problem.dense:
        H = _hessian(problem, path)
        layers.append(
            {
                "duality": _duality(problem, path, H, settings),
                "flatness": _flatness(problem.weight(path), H),
                "sensitivity": _layer_sensitivity(problem, path, samples),
                "fisher": _layer_fisher(problem, path, samples, subsets),
            }
        )
    return {
        "gap": _gap(problem),
        "layers": layers,
        "network": {
            "duality": _carriers(problem),
            "flatness": _network_flatness([layer["flatness"] for layer in layers]),
            "fisher": _fisher(problem, samples, subsets, settings),
            "sensitivity": _sensitivity(problem, samples),
        },
    }


def _mean(values: list[float] | Tensor) -> float:
    values = values.tolist() if isinstance(values, Tensor) else values
    return math.fsum(values) / len(values)


def _gap(p: Problem) -> Block:
    train, test = p.losses(p.x, p.y), p.losses(p.x_test, p.y_test)
    found: Block = {"train_loss": _mean(train), "test_loss": _mean(test), "loss_gap": _mean(test) - _mean(train)}
    if p.task == "regression":
        for name, x, y in (("train", p.x, p.y), ("test", p.x_test, p.y_test)):
            y = y.reshape(len(y), -1)
            errors = (p.scores(x) - y).square()
            found[f"{name}_rmse"] = math.sqrt(float(errors.mean()))
            found[f"{name}_r2"] = _mean(1 - errors.sum(0) / (y - y.mean(0)).square().sum(0))
        return found
    wrong, wrong_test = p.wrong(p.x, p.y), p.wrong(p.x_test, p.y_test)
    found |= {"train_error": _mean(wrong), "test_error": _mean(wrong_test)}
    found |= {"error_gap": found["test_error"] - found["train_error"]}
    found |= {f"{name}_accuracy": 1 - found[f"{name}_error"] for name in ("train", "test")}
    found["per_class"] = []
    for label in sorted(set(p.y.tolist()) | set(p.y_test.tolist())):
        mine, mine_test = p.y == label, p.y_test == label
        found["per_class"].append(
            {
                "train_loss": _mean(train[mine]),
                "test_loss": _mean(test[mine_test]),
                "train_error": _mean(wrong[mine]),
                "test_error": _mean(wrong_test[mine_test]),
                "loss_gap": _mean(test[mine_test]) - _mean(train[mine]),
            }
        )
    return found


def _hessian(p: Problem, path: str) -> Tensor:
    """H [out·in, out·in] of the mean train loss in one layer's weights."""
    W = p.weight(path)

    def mean_loss(flat: Tensor) -> Tensor:
        return p.losses(p.x, p.y, {f"{path}.weight": flat.reshape(W.shape)}).mean()

    H = torch.autograd.functional.hessian(mean_loss, W.flatten())
    return (H + H.T) / 2


def _partners(p: Problem) -> list[int]:
    """The nearest train sample of the same label, the first of equals; −1 where there is none."""
    found = []
    for k in range(len(p.x_test)):
        best, place = math.inf, -1
        for i in range(len(p.x)):
            distance = float((p.x_test[k] - p.x[i]).square().sum())
            if distance < best and (p.task == "regression" or p.y[i] == p.y_test[k]):
                best, place = distance, i
        found.append(place)
    return found


def _carriers(p: Problem) -> Block:
    """The gap over pairs, and what each class adds to it."""
    train, test = p.losses(p.x, p.y), p.losses(p.x_test, p.y_test)
    pairs = [(k, float(test[k] - train[i])) for k, i in enumerate(_partners(p)) if i >= 0]
    total = math.fsum(gap for _, gap in pairs)
    found: Block = {"pairs": len(pairs), "gap": total / len(pairs)}
    if p.task == "regression":
        return found
    found["classes"] = []
    for label in sorted(set(p.y.tolist()) | set(p.y_test.tolist())):
        mine = [gap for k, gap in pairs if p.y_test[k] == label]
        part = {"contribution": math.fsum(mine) / len(pairs), "mean_gap": _mean(mine)}
        found["classes"].append({**part, "share": math.fsum(mine) / total if total > 0 else None})
    return found


def _duality(p: Problem, path: str, H: Tensor, settings: Block) -> Block:
    """Feng & Tu, Eqs. 6–12, for a layer that acts on one vector per sample."""
    W, partner = p.weight(path), _partners(p)
    h, h_test = (p.inside(path, x)[0].reshape(len(x), -1) for x in (p.x, p.x_test))
    dw, g, gaps, errors = [], [], [], []
    for k, i in enumerate(partner):
        if i < 0 or not h[i].any():
            continue
        step = torch.outer(W @ (h_test[k] - h[i]), h[i]) / h[i].square().sum()
        own = float(p.loss(p.x_test[k], p.y_test[k]))
        gap = own - float(p.loss(p.x[i], p.y[i]))
        dual = p.loss(p.x[i], p.y_test[k], {f"{path}.weight": W + step})
        square = float(step.square().sum())
        dw.append(step.flatten())
        g.append(gap / square * step.flatten() if square > 0 else torch.zeros_like(step.flatten()))
        gaps.append(gap)
        errors.append(abs(float(dual) - own))
    found: Block = {"pairs": len(gaps), "unpaired": partner.count(-1), "gap": _mean(gaps)}
    if max(errors) > DUAL * max(1.0, float(p.losses(p.x_test, p.y_test).max())):
        return {**found, "max_residual": max(errors)}
    return found | _split(p, path, H, torch.stack(dw), torch.stack(g), settings)


def _split(p: Problem, path: str, H: Tensor, dw: Tensor, g: Tensor, settings: Block) -> Block:
    values, E = eigenbasis(H, g, dw)
    w_n, g_n = dw @ E, g @ E
    sigma_g, sigma_w = g_n.std(0, correction=0), w_n.std(0, correction=0)
    contribution = ((g_n - g_n.mean(0)) * (w_n - w_n.mean(0))).mean(0)
    total = float(contribution.sum())
    count = elbow(sigma_g.tolist())
    sharp = float(contribution[:count].sum())
    found: Block = {
        "directions": len(values),
        "eigenvalues": values.tolist(),
        "sigma_g": sigma_g.tolist(),
        "sigma_w": sigma_w.tolist(),
        "cumulative_w": sigma_w.cumsum(0).tolist(),
        "c": (contribution / (sigma_g * sigma_w)).tolist(),
        "contribution": contribution.tolist(),
        "mean_term": float((g.mean(0) * dw.mean(0)).sum()),
        "sharp": {"count": count, "contribution": sharp, "share": sharp / total if total > 0 else None},
        "flat": {"contribution": total - sharp, "share": 1 - sharp / total if total > 0 else None},
        "total_g": float(g.var(0, correction=0).sum()),
        "total_w": float(dw.var(0, correction=0).sum()),
        "total_w_second_moment": float(dw.square().sum(1).mean()),
        "trace_hessian": float(H.trace()),
        "widths": [_width(p, path, E[:, n]) for n in range(settings["widths"])],
    }
    if p.task != "regression":
        classes = max(2, p.scores(p.x[:1]).shape[1])
        part = float(contribution[:classes].sum())
        share = part / total if total > 0 else None
        found["fixed"] = {"count": classes, "contribution": part, "share": share}
    return found


def _width(p: Problem, path: str, e: Tensor) -> Block:
    """Between the first places on both sides where the mean train loss has doubled, by small steps and bisection."""
    W = p.weight(path)

    def height(t: float) -> float:
        return float(p.losses(p.x, p.y, {f"{path}.weight": W + t * e.reshape(W.shape)}).mean())

    start, sides, farthest = height(0.0), [], 1e3 * max(1.0, float(W.norm()))
    for side in (1, -1):
        low, high = 0.0, 0.02
        while height(side * high) < 2 * start:
            if high == farthest:
                return {"width": None}
            low, high = high, min(high * 1.1, farthest)
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if height(side * middle) < 2 * start else (low, middle)
        sides.append(high)
    return {"width": sum(sides)}


def _flatness(W: Tensor, H: Tensor) -> Block:
    """Petzka et al., Table 1 and relative flatness, read off the Hessian."""
    out, size = W.shape
    blocks, norm2 = H.reshape(out, size, out, size), float(W.square().sum())
    trace, largest = float(H.trace()), float(torch.linalg.eigvalsh(H)[-1])
    rows = [float(W[j] @ blocks[j, :, j] @ W[j]) for j in range(out)]
    columns = [float(W[:, i] @ blocks[:, i, :, i] @ W[:, i]) for i in range(size)]
    relative = sum(float(W[s] @ W[t]) * float(blocks[s, :, t].trace()) for s in range(out) for t in range(out))
    return {
        "weight_norm_squared": norm2,
        "lambda_max": largest,
        "trace": trace,
        "kappa": norm2 * largest,
        "kappa_tau": norm2 * trace,
        "rho": max(rows),
        "rho_sigma": sum(rows),
        "rho_neurons": rows,
        "rho_columns": max(columns),
        "rho_columns_sigma": sum(columns),
        "rho_column_neurons": columns,
        "relative_flatness": relative,
    }


def _network_flatness(layers: list[Block]) -> Block:
    def every(name: str) -> list[float]:
        return [layer[name] for layer in layers]

    return {
        "kappa_max": max(every("kappa")),
        "kappa_sum": sum(every("kappa")),
        "kappa_tau_max": max(every("kappa_tau")),
        "kappa_tau_sum": sum(every("kappa_tau")),
        "rho_max": max(every("rho")),
        "rho_sum": sum(every("rho_sigma")),
        "rho_columns_max": max(every("rho_columns")),
        "rho_columns_sum": sum(every("rho_columns_sigma")),
        "relative_flatness_sum": sum(every("relative_flatness")),
        "lambda_max": max(every("lambda_max")),
        "lambda_max_sum": sum(every("lambda_max")),
        "trace_max": max(every("trace")),
        "trace_sum": sum(every("trace")),
    }


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


def _sample(p: Problem, i: int) -> Sample:
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


def _norm2(K: Tensor) -> float:
    return float(torch.linalg.matrix_norm(K, 2))


def _log_volume(K: Tensor) -> float:
    """½ ln det(K Kᵀ); −∞ where the rank is below the number of rows."""
    s = torch.linalg.svdvals(K)
    if K.shape[1] < K.shape[0] or s[-1] <= max(K.shape) * 2.3e-16 * s[0]:
        return -math.inf
    return float(s.log().sum())


def _volumes(Ks: list[Tensor]) -> Block:
    logs = [_log_volume(K) for K in Ks]
    full = [value for value in logs if value > -math.inf]
    return {
        "mean_log_volume": _mean(full) if full else None,
        "log_mean_volume": math.log(math.fsum(map(math.exp, full)) / len(logs)) if full else None,
        "rank_deficient_samples": len(logs) - len(full),
    }


def _layer_sensitivity(p: Problem, path: str, samples: list[Sample]) -> Block:
    W, Ks = p.weight(path), [sample.local(p.weight(path), path) for sample in samples]
    found: Block = {
        "mls": _mean([_norm2(K) for K in Ks]),
        **_volumes(Ks),
        "weight_spectral_norm": _norm2(W),
        "sharpness": _mean([float(sample.by_parameter[f"{path}.weight"].square().sum()) for sample in samples]),
        "degenerate_inputs": sum(not bool(sample.given[path].any()) for sample in samples),
    }
    if any(not torch.allclose(sample.whole[path], K) for sample, K in zip(samples, Ks, strict=True)):
        usable = [(sample, K) for sample, K in zip(samples, Ks, strict=True) if sample.given[path].norm() > ZERO]
        total = _mean([_norm2(sample.whole[path]) for sample, _ in usable])
        skip = _mean([_norm2(sample.whole[path] - K) for sample, K in usable])
        gradients = [float(sample.by_parameter[f"{path}.weight"].norm()) for sample, _ in usable]
        lengths = [float(sample.given[path].norm()) for sample, _ in usable]
        right = _mean([_norm2(W) * g / length for g, length in zip(gradients, lengths, strict=True)])
        found["skip"] = {"total_mls": total, "skip_mls": skip, "left": total - skip, "right": right}
    return found


def _sensitivity(p: Problem, samples: list[Sample]) -> Block:
    values = dict(p.network.named_parameters())
    S = [sum(float(v.square().sum()) for v in sample.by_parameter.values()) for sample in samples]
    adaptive = [
        sum(float((v.square() * values[name].square()).sum()) for name, v in sample.by_parameter.items())
        for sample in samples
    ]
    Ks, C = [sample.K for sample in samples], len(samples[0].K)
    layered = {path: [sample.local(p.weight(path), path) for sample in samples] for path in p.dense}
    logs = [_log_volume(K) for each in layered.values() for K in each]
    eigenvalues = [torch.linalg.eigvalsh(K @ K.T) for K in Ks if K.any()]
    found: Block = {
        "sharpness": _mean(S),
        "sharpness_trace": _trace(p, _mean(S)),
        "adaptive_sharpness": _mean(adaptive),
        "mls": _mean([_norm2(K) for K in Ks]),
        "nmls": sum(_mean([_norm2(K) for K in each]) for each in layered.values()),
        **_volumes(Ks),
        "log_network_volume": math.log(total) if (total := sum(map(math.exp, logs)) / len(Ks)) > 0 else None,
        "mean_rank": _mean([float(torch.linalg.matrix_rank(K)) for K in Ks]),
        "dimensionality": _mean([float(v.sum() ** 2 / v.square().sum()) for v in eigenvalues]),
        "input_invariant_mls": _mean([float((s.K.square() * s.x.square()).sum()) for s in samples]),
        "normalized_mls": _mean([float(s.x.square().sum()) * _norm2(s.K) ** 2 for s in samples]),
        "matrix_normalized_sharpness": sum(
            _norm2(p.weight(path))
            * math.sqrt(_mean([float(s.by_parameter[f"{path}.weight"].square().sum()) for s in samples]))
            for path in p.dense
        ),
    }
    if C > 1:
        centre = torch.linalg.svd(torch.eye(C, dtype=torch.float64) - 1 / C)[0][:, : C - 1]
        found["mean_log_volume_centred"] = _volumes([centre.T @ K for K in Ks])["mean_log_volume"]
    return found | _bounds(p, samples, S, adaptive)


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


def _bounds(p: Problem, samples: list[Sample], S: list[float], adaptive: list[float]) -> Block:
    """Both sides of Props. 3.4, 3.6, 3.8, 3.10 and E.4 and of Eq. 35, and the chain of Eq. 48."""
    N, first = len(samples[0].K), p.dense[0]
    found = []
    for volume, sensitivity, paths in (("prop-3.4", "prop-3.8", p.dense[:1]), ("prop-3.6", "prop-3.10", p.dense)):
        kept = [
            (_norm2(p.weight(path)) / float(sample.given[path].norm()), sample.local(p.weight(path), path))
            for path in paths
            for sample in samples
            if sample.given[path].norm() > ZERO
        ]
        some = [i for i, sample in enumerate(samples) if any(sample.given[path].norm() > ZERO for path in paths)]
        n, mean_S = len(some), _mean([S[i] for i in some])
        left = math.fsum(math.exp(_log_volume(K)) for _, K in kept) / n
        right = math.sqrt(math.fsum(ratio ** (2 * N) for ratio, _ in kept)) / n * (n * mean_S / N) ** (N / 2)
        found.append({"id": volume, "left": math.log(left) if left > 0 else None, "right": math.log(right)})
        left = math.fsum(_norm2(K) for _, K in kept) / n
        right = math.sqrt(math.fsum(ratio**2 for ratio, _ in kept) / n) * math.sqrt(mean_S)
        found.append({"id": sensitivity, "left": left, "right": right})
    d = len(p.weight(first))
    invariant = [float((s.local(p.weight(first), first).square() * s.given[first].square()).sum()) for s in samples]
    found.append({"id": "prop-e.4", "left": _mean(invariant) / d, "right": _mean(adaptive)})
    found.append({"id": "eq-35", **_weighted(p, samples)})
    return {"bounds": found, "chain": _chain(p, samples, S)}


def _of_layer(p: Problem, samples: list[Sample], path: str) -> list[tuple[float, float, float]]:
    """‖J W‖₂, ‖∇_W f‖_F and ‖x‖ of every sample whose x is not zero."""
    return [
        (
            _norm2(s.local(p.weight(path), path)),
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
        left += _mean([mls for mls, _, _ in rows]) / math.sqrt(_mean([1 / x**2 for _, _, x in rows]))
        right += _norm2(p.weight(path)) * math.sqrt(_mean([g**2 for _, g, _ in rows]))
    return {"left": left, "right": right}


def _chain(p: Problem, samples: list[Sample], S: list[float]) -> Block:
    W, rows = _norm2(p.weight(p.dense[0])), _of_layer(p, samples, p.dense[0])
    inverse = math.sqrt(_mean([1 / x**2 for _, _, x in rows]))
    used = [S[i] for i, sample in enumerate(samples) if sample.given[p.dense[0]].norm() > ZERO]
    return {
        "A": _mean([mls for mls, _, _ in rows]),
        "B": W * _mean([g / x for _, g, x in rows]),
        "C": W * inverse * math.sqrt(_mean([g**2 for _, g, _ in rows])),
        "D": W * inverse * math.sqrt(_mean(used)),
    }


def _log_determinants(gradients: Tensor, subsets: list[list[int]]) -> list[tuple[float, float]]:
    """Σ ln ‖g‖² and ln det of the cosines, for each subset whose determinant is not zero."""
    found = []
    for subset in subsets:
        G = gradients[subset]
        norms = G.norm(dim=1)
        if len(G) > G.shape[1] or bool((norms == 0).any()):
            continue
        s = torch.linalg.svdvals(G / norms[:, None])
        if s[-1] ** 2 > 4 * len(G) * 2.2e-16:
            found.append((float(2 * norms.log().sum()), float(2 * s.log().sum())))
    return found


def _gradients(samples: list[Sample], names: list[str]) -> Tensor:
    return torch.stack([torch.cat([sample.loss_gradient[name].flatten() for name in names]) for sample in samples])


def _layer_fisher(p: Problem, path: str, samples: list[Sample], subsets: list[list[int]]) -> Block:
    if p.task == "regression":
        return {"gamma": None}
    names = [name for name in samples[0].loss_gradient if name.startswith(f"{path}.")]
    logs = [sum(parts) for parts in _log_determinants(_gradients(samples, names), subsets)]
    return {
        "gamma": _mean(logs) if logs else None,
        "gamma_std": float(torch.tensor(logs).double().std(correction=0)) if len(logs) > 1 else None,
        "singular_subsets": len(subsets) - len(logs),
    }


def _fisher(p: Problem, samples: list[Sample], subsets: list[list[int]], settings: Block) -> Block:
    if p.task == "regression":
        return {"gamma": None, "robustness": None}
    names, N = list(samples[0].loss_gradient), len(subsets[0])
    G = _gradients(samples, names)
    parts = _log_determinants(G, subsets)
    grams = [G[subset] @ G[subset].T for subset in subsets]
    P = G.shape[1]
    found: Block = {
        "parameters": P,
        "singular_subsets": len(subsets) - len(parts),
        "robustness": _mean([_norm2(sample.slope) ** 2 for sample in samples]),
        "frobenius_norm": _mean([float(K.square().sum()) / N**2 for K in grams]),
        "frobenius_norm_per_sample": _mean([float(K.diagonal().square().mean()) for K in grams]),
        "spectral_radius": _mean([float(torch.linalg.eigvalsh(K)[-1]) / N for K in grams]),
    }
    if not parts:
        return {**found, "gamma": None}
    gamma = _mean([sum(both) for both in parts])
    loss, n = _mean(p.losses(p.x, p.y)), len(samples)
    A = settings["volume"] ** (2 / P) * math.pi ** (1 / P) * math.exp(gamma / N) / (4 * math.pi * math.e)
    bound = loss + 2 * math.sqrt((2 * loss + 2 * A + math.log(2 * n / settings["delta"])) / (n - 1))
    return found | {
        "gamma": gamma,
        "gamma_std": float(torch.tensor([sum(both) for both in parts]).double().std(correction=0)),
        "gamma_norms": _mean([norms for norms, _ in parts]),
        "gamma_angles": _mean([angles for _, angles in parts]),
        "gamma_full": P / N * gamma - P * math.log(P),
        "pac_bayes": {"bound": bound, "complexity": A},
    }
