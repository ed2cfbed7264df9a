"""Where the gap comes from, one pair and one direction after the other."""

from __future__ import annotations

import math

import torch
from references.spectrum import eigenbasis, elbow
from references.whole.problem import DUAL, Block, Problem, mean
from torch import Tensor


def hessian(p: Problem, path: str) -> Tensor:
    """H [out·in, out·in] of the mean train loss in one layer's weights."""
    W = p.weight(path)

    def mean_loss(flat: Tensor) -> Tensor:
        return p.losses(p.x, p.y, p.with_weight(path, flat)).mean()

    H = torch.autograd.functional.hessian(mean_loss, W.flatten())
    return (H + H.T) / 2


def partners(p: Problem, path: str | None = None) -> list[int]:
    """The nearest train sample of the same label, the first of equals; −1 where there is none.

    With a layer, near by what that layer is given, if the problem looks for partners there.
    """
    x, x_test = p.x, p.x_test
    if path is not None and p.partner_space == "features":
        x, x_test = ([p.given(path, one) for one in each] for each in (x, x_test))
    found = []
    for k in range(len(x_test)):
        best, place = math.inf, -1
        for i in range(len(x)):
            distance = float((x_test[k] - x[i]).double().square().sum())
            if distance < best and (p.task == "regression" or p.y[i] == p.y_test[k]):
                best, place = distance, i
        found.append(place)
    return found


def carriers(p: Problem, partner: list[int]) -> Block:
    """The gap over pairs, and what each class adds to it."""
    train, test = p.losses(p.x, p.y), p.losses(p.x_test, p.y_test)
    pairs = [(k, float(test[k] - train[i])) for k, i in enumerate(partner) if i >= 0]
    total = math.fsum(gap for _, gap in pairs)
    found: Block = {"pairs": len(pairs), "gap": total / len(pairs)}
    if p.task == "regression":
        return found
    found["classes"] = []
    for label in sorted(set(p.y.tolist()) | set(p.y_test.tolist())):
        mine = [gap for k, gap in pairs if p.y_test[k] == label]
        part = {"contribution": math.fsum(mine) / len(pairs), "mean_gap": mean(mine)}
        found["classes"].append({**part, "share": math.fsum(mine) / total if total > 0 else None})
    return found


def duality(p: Problem, path: str, H: Tensor, settings: Block) -> Block:
    """Feng & Tu, Eqs. 6–12; with several vectors per sample, ΔW = W ΔX X⁺ for the columns of X."""
    W, partner = p.weight(path), partners(p, path)
    dw, g, gaps, errors, misses = [], [], [], [], [0.0]
    for k, i in enumerate(partner):
        if i < 0 or not (X := p.given(path, p.x[i]).T).any():
            continue
        wanted = W @ (p.given(path, p.x_test[k]).T - X)
        step = wanted @ torch.linalg.pinv(X)
        own = float(p.loss(p.x_test[k], p.y_test[k]))
        gap = own - float(p.loss(p.x[i], p.y[i]))
        dual = p.loss(p.x[i], p.y_test[k], p.with_weight(path, W + step))
        square = float(step.square().sum())
        dw.append(step.flatten())
        g.append(gap / square * step.flatten() if square > 0 else torch.zeros_like(step.flatten()))
        gaps.append(gap)
        errors.append(abs(float(dual) - own))
        misses += [float((step @ X - wanted).norm() / wanted.norm())] if wanted.any() else []
    found: Block = {"pairs": len(gaps), "unpaired": partner.count(-1), "gap": mean(gaps)}
    found["dropped"] = len(partner) - found["unpaired"] - found["pairs"]
    if max(misses) > DUAL:
        found["dual_residual"] = max(misses)
    if p.partner_space == "features":
        found["carriers"] = carriers(p, partner)
    if max(errors) > DUAL * max(1.0, float(p.losses(p.x_test, p.y_test).max())):
        found |= {"max_residual": max(errors), "mean_residual": mean(errors)}
        found["relative_residual"] = mean(errors) / mean([abs(gap) for gap in gaps])
        if path not in p.convolutions:
            return {**found, "sigma_g": [], "total_g": None}
    return found | _split(p, path, H, torch.stack(dw), torch.stack(g), gaps, settings)


def _split(p: Problem, path: str, H: Tensor, dw: Tensor, g: Tensor, gaps: list[float], settings: Block) -> Block:
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
        "target_term": math.fsum(gap for gap, step in zip(gaps, dw, strict=True) if not step.any()) / len(gaps),
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
        return float(p.losses(p.x, p.y, p.with_weight(path, W + t * e.reshape(W.shape))).mean())

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
